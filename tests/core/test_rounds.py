"""Long steps take turns on the event loop, and long work in a thread gives way to it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from pointsman.core.rounds import GIVE_WAY_S, SELDOM, giving_way, long_turn, own_round


async def rounds_of_twelve_steps(step: Callable[[], Awaitable[None]]) -> list[int]:
    """The rounds of the event loop in which each of four tasks at a time went on after its steps."""
    loop, round_number, went_on = asyncio.get_running_loop(), 0, list[int]()

    def next_round() -> None:
        nonlocal round_number
        round_number += 1
        counting[0] = loop.call_soon(next_round)

    async def three_steps() -> None:
        for _ in range(3):
            await step()
            went_on.append(round_number)

    counting = [loop.call_soon(next_round)]
    await asyncio.gather(*(three_steps() for _ in range(4)))
    counting[0].cancel()
    assert len(went_on) == 12
    return went_on


async def test_no_two_long_steps_share_a_round() -> None:
    assert len(set(await rounds_of_twelve_steps(own_round))) == 12


async def test_a_small_call_gets_rounds_between_two_long_steps() -> None:
    went_on = await rounds_of_twelve_steps(long_turn)
    assert all(later - earlier >= 2 for earlier, later in pairwise(went_on))


@pytest.mark.parametrize("step", [own_round, long_turn])
async def test_the_turn_of_a_cancelled_task_is_not_waited_for(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(step()) for _ in range(3)]
    await asyncio.sleep(0)  # all of them wait
    tasks[0].cancel()
    tasks[1].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks] == [True, True, False]


def test_the_interpreter_lock_is_left_soon_until_the_last_thread_is_done() -> None:
    usual_s = sys.getswitchinterval()
    inside, leave = threading.Event(), threading.Event()

    def compute() -> None:
        with giving_way():
            inside.set()
            leave.wait(5)

    thread = threading.Thread(target=compute)
    with giving_way():
        thread.start()
        assert inside.wait(5)
    assert abs(sys.getswitchinterval() - GIVE_WAY_S) < 1e-6
    leave.set()
    thread.join()
    assert abs(sys.getswitchinterval() - usual_s) < 1e-6


def test_old_garbage_is_collected_seldom_while_a_thread_computes() -> None:
    usual = gc.get_threshold()
    with giving_way(), giving_way():
        assert gc.get_threshold() == (usual[0], max(usual[1], SELDOM), max(usual[2], SELDOM))
    assert gc.get_threshold() == usual
    try:
        with giving_way():
            gc.set_threshold(701, 3, 4)  # as a daemon does when it is ready
        assert gc.get_threshold() == (701, 3, 4)
    finally:
        gc.set_threshold(*usual)
