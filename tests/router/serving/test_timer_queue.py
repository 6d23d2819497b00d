"""Many timers behind one timer of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.router.serving.timer_queue import TimerQueue


async def test_entries_expire_in_their_order_and_discarded_ones_never() -> None:
    expired: list[str] = []
    over = asyncio.Event()

    def expire(entry: str) -> None:
        expired.append(entry)
        if entry == "a":
            queue.discard("b")  # at the moment at which it would expire itself
        if entry == "d":
            over.set()

    queue = TimerQueue(asyncio.get_running_loop(), 0.01, expire)
    for entry in ("a", "b", "c"):
        queue.add(entry)
    queue.discard("c")
    await asyncio.sleep(0)
    queue.add("d")
    await asyncio.wait_for(over.wait(), 10)
    assert expired == ["a", "d"]


async def test_a_queue_that_was_empty_starts_again() -> None:
    expired: asyncio.Queue[int] = asyncio.Queue()
    queue = TimerQueue(asyncio.get_running_loop(), 0.01, expired.put_nowait)
    for entry in range(3):
        queue.add(entry)
        assert await asyncio.wait_for(expired.get(), 10) == entry


async def test_one_that_fails_does_not_stop_the_others() -> None:
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    loop.set_exception_handler(lambda _, context: failures.append(str(context.get("exception"))))
    expired: asyncio.Queue[str] = asyncio.Queue()

    def expire(entry: str) -> None:
        if entry == "bad":
            raise ValueError(entry)
        expired.put_nowait(entry)

    queue = TimerQueue(loop, 0.01, expire)
    queue.add("bad")
    queue.add("good")
    assert await asyncio.wait_for(expired.get(), 10) == "good"
    assert failures == ["bad"]


@pytest.mark.parametrize("count", [1, 1000])
async def test_entries_share_one_timer(count: int) -> None:
    loop = asyncio.get_running_loop()
    queue: TimerQueue[int] = TimerQueue(loop, 60.0, lambda entry: None)
    queue.add(-1)
    timer = queue._timer
    for entry in range(count):
        queue.add(entry)
        queue.discard(entry)
    assert queue._timer is timer
    assert timer is not None
    timer.cancel()
