"""The counting behind the shares: nothing is lost or counted twice, whenever a call ends."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.config.model import Limits
from pointsman.core.errors import RateLimitedError
from pointsman.router.downstream.server.call import Deadline
from pointsman.router.front.http.stream import EventStream
from pointsman.router.front.http.unread import UnreadBudget
from pointsman.router.serving.shares import FairQueue, TokenShares
from tests.router.downstream.stdio_parts import Person


async def until_waiting(queue: FairQueue, number: int) -> None:
    async with asyncio.timeout(30):
        while queue.waiting != number:
            await asyncio.sleep(0)


def taken(queue: FairQueue, token_id: str) -> asyncio.Task[None]:
    return asyncio.create_task(queue.take(token_id))


async def test_tokens_take_turns_and_each_keeps_its_own_order() -> None:
    queue = FairQueue("s", TokenShares(Limits(server_calls=1)))
    assert queue.take_now()
    order: list[str] = []

    async def use(token_id: str, tag: str) -> None:
        await queue.take(token_id)
        order.append(tag)
        queue.give_back()

    users = []
    for token_id, tag in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")):
        users.append(asyncio.create_task(use(token_id, tag)))
        await until_waiting(queue, len(users))
    assert not queue.take_now(), "no newcomer overtakes those who wait"
    queue.give_back()
    await asyncio.gather(*users)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert (queue.running, queue.waiting) == (0, 0)


async def test_a_slot_that_comes_in_the_moment_of_leaving_goes_to_the_next() -> None:
    queue = FairQueue("s", TokenShares(Limits(server_calls=1)))
    assert queue.take_now()
    leaving, staying = taken(queue, "a"), taken(queue, "b")
    await until_waiting(queue, 2)
    queue.give_back()  # to the first, which has not run yet
    leaving.cancel()
    await staying
    assert leaving.cancelled()
    assert (queue.running, queue.waiting) == (1, 0)


async def test_a_slot_that_comes_in_the_moment_of_cancelling_is_not_lost() -> None:
    queue = FairQueue("s", TokenShares(Limits(server_calls=1)))
    assert queue.take_now()
    leaving = taken(queue, "a")
    await until_waiting(queue, 1)
    leaving.cancel()
    queue.give_back()
    await asyncio.wait([leaving])
    assert (queue.running, queue.waiting) == (0, 0)
    assert queue.take_now()


async def test_more_slots_are_handed_out_at_once() -> None:
    shares = TokenShares(Limits(server_calls=1))
    queue = FairQueue("s", shares)
    assert queue.take_now()
    waiting = [taken(queue, "a") for _ in range(3)]
    await until_waiting(queue, 3)
    shares.reload(Limits(server_calls=3))
    queue.hand_out()
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert (queue.running, queue.waiting) == (3, 1)
    queue.give_back()
    await asyncio.gather(*waiting)


async def test_a_token_over_its_share_is_refused_and_others_are_not() -> None:
    shares = TokenShares(Limits(token_calls=2, calls=3))
    shares.enter("a")
    shares.enter("a")
    with pytest.raises(RateLimitedError, match="2 requests in progress") as refused:
        shares.enter("a")
    assert refused.value.retry_after_s == 1
    shares.enter("b")
    assert shares.is_full()
    for token_id in ("a", "a", "b"):
        shares.leave(token_id)
    assert shares.total == 0


@pytest.mark.parametrize("answered", [True, False])
async def test_a_question_gives_the_slot_up_and_the_end_gives_it_back_once(answered: bool) -> None:
    shares = TokenShares(Limits())
    queue = FairQueue("s", shares)
    shares.enter("a")
    assert queue.take_now()
    with Deadline(asyncio.get_running_loop(), 60, Person(), queue, "a") as deadline:
        deadline.pause()
        deadline.pause()  # two questions at once
        assert (queue.running, shares.total) == (0, 0)
        deadline.resume()
        assert (queue.running, shares.total) == (0, 0)
        if answered:
            deadline.resume()
            assert (queue.running, shares.total) == (1, 1)
    if not answered:
        deadline.resume()  # the answer to a call that is over
    queue.give_back()
    shares.leave("a")
    assert (queue.running, shares.total) == (0, 0)


class Unread:
    def __init__(self, token_id: str, unread: int) -> None:
        self.token_id: str | None = token_id
        self.unread = unread
        self.was_cut = False

    def cut(self) -> None:
        self.was_cut = True


def test_the_token_that_holds_most_loses_its_slowest_readers_first() -> None:
    budget = UnreadBudget(lambda: 100)
    small, first, second, third = Unread("b", 30), Unread("a", 30), Unread("a", 30), Unread("a", 30)
    for reader in (small, first, second):
        budget.behind(reader)
    assert not any(reader.was_cut for reader in (small, first, second))
    budget.behind(third)
    assert [reader.was_cut for reader in (small, first, second, third)] == [False, True, False, False]
    assert budget.total == 90


async def test_what_a_stream_holds_for_a_blocked_connection_counts_until_the_stream_is_gone() -> None:
    budget = UnreadBudget(lambda: 100_000)
    blocked = Unread("a", 10)
    budget.behind(blocked)

    async def send(message: object) -> None:
        await asyncio.Event().wait()

    stream = EventStream(send, 15.0, budget)
    stream.put(b"x" * 60_000)
    assert budget.total == 60_010
    stream.close(b"y" * 70_000)
    assert blocked.was_cut
    del stream
    assert budget.total == 0


def test_an_answer_larger_than_the_budget_is_still_sent() -> None:
    budget = UnreadBudget(lambda: 100)
    large = Unread("a", 1000)
    budget.behind(large)
    assert not large.was_cut
    another = Unread("b", 10)
    budget.behind(another)
    assert large.was_cut
    assert not another.was_cut
