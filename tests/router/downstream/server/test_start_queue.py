"""Few servers start at the same time, and those that are likely to come up start first."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pointsman.router.downstream.server.start_queue import MOST_AT_ONCE, Rank, StartQueue
from tests.gateway_process import gateway_process
from tests.router.conftest import workshop
from tests.router.downstream.http_parts import PATIENCE_S, until

# Notes its start and its end, and fails its handshake.
CRASHES = """
import sys, time
with open(sys.argv[1], "a") as trace: trace.write("+\\n")
time.sleep(0.2)
with open(sys.argv[1], "a") as trace: trace.write("-\\n")
sys.exit(1)
"""


class Starts:
    """Starts that end when a test says so."""

    def __init__(self, queue: StartQueue) -> None:
        self.queue = queue
        self.begun: list[str] = []
        self.may_end = asyncio.Semaphore(0)

    async def start(self, name: str, rank: Rank) -> None:
        async with self.queue.slot(rank):
            self.begun.append(name)
            await self.may_end.acquire()


async def test_ranks_start_in_order_and_equal_ones_as_they_came() -> None:
    starts = Starts(StartQueue(most=1))
    names = [("first", Rank.NEW), ("bad", Rank.FAILING), ("a", Rank.NEW), ("ran", Rank.RAN_BEFORE), ("b", Rank.NEW)]
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for name, rank in names:
            group.create_task(starts.start(name, rank))
        for count in range(1, 6):
            await until(lambda count=count: len(starts.begun) == count)  # type: ignore[misc]
            starts.may_end.release()
    assert starts.begun == ["first", "ran", "a", "b", "bad"]


async def test_a_start_that_is_cancelled_gives_its_slot_to_the_next_one() -> None:
    starts = Starts(StartQueue(most=1))
    running = asyncio.create_task(starts.start("running", Rank.NEW))
    waiting = asyncio.create_task(starts.start("waiting", Rank.NEW))
    last = asyncio.create_task(starts.start("last", Rank.NEW))
    await until(lambda: starts.begun == ["running"])
    waiting.cancel()
    running.cancel()
    await until(lambda: starts.begun == ["running", "last"])
    starts.may_end.release()
    await last


async def test_nothing_starts_while_starts_are_held_and_no_more_than_the_limit_after_that() -> None:
    starts = Starts(StartQueue(most=2))
    starts.queue.hold()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for name, rank in (("new", Rank.NEW), ("ran", Rank.RAN_BEFORE), ("bad", Rank.FAILING)):
            group.create_task(starts.start(name, rank))
        await asyncio.sleep(0)
        assert starts.begun == []
        starts.queue.resume()
        await until(lambda: len(starts.begun) == 2)
        assert {*starts.begun} == {"ran", "new"}
        for _ in range(3):
            starts.may_end.release()
    assert starts.begun[-1] == "bad"


async def test_the_ready_line_comes_before_the_first_process(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    servers = {f"s{number}": {"command": sys.executable, "args": ["-c", CRASHES, str(trace)]} for number in range(20)}
    async with gateway_process(tmp_path, {"servers": servers}) as gateway:
        ready = next(number for number, line in enumerate(gateway.lines) if "pointsman ready on" in line)
        assert not [line for line in gateway.lines[:ready] if "server s" in line]
        assert trace.read_text().count("+") >= 20


async def test_a_start_that_hangs_does_not_keep_its_slot() -> None:
    starts = Starts(StartQueue(most=1, slot_s=0.01))
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for name in ("hanging", "hanging too", "good"):
            group.create_task(starts.start(name, Rank.NEW))
        await until(lambda: len(starts.begun) == 3)
        for _ in range(3):
            starts.may_end.release()
    async with starts.queue.slot(Rank.NEW):
        assert starts.queue._free == 0  # no slot was given back twice


async def test_a_good_server_among_many_that_crash_comes_up_and_few_start_at_a_time(tmp_path: Path) -> None:
    """The second run knows which one ran: it starts before all others, although it is the last in the file."""
    trace = tmp_path / "starts"
    crash = {"command": sys.executable, "args": ["-S", "-c", CRASHES, str(trace)]}
    bad = {f"bad{number}": crash for number in range(3 * MOST_AT_ONCE)}
    config = {"servers": bad | {"good": workshop(tmp_path / "trace")}}
    for run in (1, 2):
        async with gateway_process(tmp_path, config, without=bad.keys()) as gateway:
            assert "server good is running" in gateway.stderr
            failed_before = gateway.stderr.partition("server good is running")[0].count("it exited with code 1")
            if run == 2:  # as the last in the order of the file, it starts after at least 17 have failed
                assert failed_before <= 2 * MOST_AT_ONCE
    now, most = 0, 0
    for word in trace.read_text().split():
        now += 1 if word == "+" else -1
        most = max(most, now)
    assert 1 < most <= 2 * MOST_AT_ONCE  # 8, unless the first run was ended in the middle of starts


@pytest.mark.parametrize("rank", list(Rank))
async def test_as_many_start_at_once_as_there_are_slots(rank: Rank) -> None:
    starts = Starts(StartQueue())
    tasks = [asyncio.create_task(starts.start(str(number), rank)) for number in range(20)]
    await until(lambda: len(starts.begun) == MOST_AT_ONCE)
    await asyncio.sleep(0.01)
    assert len(starts.begun) == MOST_AT_ONCE
    for _ in tasks:
        starts.may_end.release()
    await asyncio.gather(*tasks)
