"""Small writes to many connections, one after the other."""

from __future__ import annotations

import asyncio

from pointsman.router.serving.write_queue import MOST_WAITING, WriteQueue

Written = list[tuple[str, bytes]]


class Connection:
    """Fits `write_queue.Writer`."""

    def __init__(self, name: str, written: Written) -> None:
        self._name = name
        self._written = written

    def write_now(self, data: bytes) -> None:
        self._written.append((self._name, data))


async def test_writes_of_a_round_are_made_in_their_order_in_the_next_one() -> None:
    loop, queue, written = asyncio.get_running_loop(), WriteQueue(), Written()
    first, second = Connection("a", written), Connection("b", written)
    queue.add(first, b"1", loop)
    queue.add(second, b"2", loop)
    queue.add(first, b"3", loop)
    assert not written
    await asyncio.sleep(0)
    assert written == [("a", b"1"), ("b", b"2"), ("a", b"3")]


async def test_many_writes_do_not_wait_for_the_end_of_the_round() -> None:
    loop, queue, written = asyncio.get_running_loop(), WriteQueue(), Written()
    connection = Connection("a", written)
    for number in range(MOST_WAITING + 1):
        queue.add(connection, b"%d" % number, loop)
    assert len(written) == MOST_WAITING
    await asyncio.sleep(0)
    assert [data for _, data in written] == [b"%d" % number for number in range(MOST_WAITING + 1)]


async def test_what_is_added_during_a_flush_follows_in_the_next_round() -> None:
    loop, queue, written = asyncio.get_running_loop(), WriteQueue(), Written()
    last = Connection("last", written)

    class Answering(Connection):
        def write_now(self, data: bytes) -> None:
            super().write_now(data)
            queue.add(last, b"later", loop)

    queue.add(Answering("first", written), b"1", loop)
    queue.flush()
    assert written == [("first", b"1")]
    await asyncio.sleep(0)
    assert written[1:] == [("last", b"later")]
