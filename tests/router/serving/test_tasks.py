"""Background tasks: a failure is logged and counted, and the task is restarted or ends its daemon."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from pointsman.config.model import GatewayConfig
from pointsman.router.launch import Launch
from pointsman.router.run import serve
from pointsman.router.serving.tasks import Backoff, DaemonError, TaskSet

LONG_S = 30.0  # against hanging


async def test_a_task_that_fails_is_logged_with_its_traceback_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []
    third = asyncio.Event()

    async def work() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise ValueError(f"run {len(runs)} went wrong")
        third.set()
        await asyncio.Event().wait()

    tasks = TaskSet(backoff_s=0.001)
    tasks.start("digging", work)
    async with asyncio.timeout(LONG_S):
        await third.wait()
    assert tasks.restarts == {"digging": 2}
    assert "ValueError: run 2 went wrong" in tasks.failing["digging"]
    assert "`digging` failed" in caplog.text
    assert "Traceback" in caplog.text
    await tasks.close()


async def test_a_task_that_runs_steadily_again_is_no_longer_failing() -> None:
    now = 0.0
    again = asyncio.Event()

    async def work() -> None:
        if not tasks.restarts["digging"]:
            raise ValueError
        again.set()
        await asyncio.Event().wait()

    tasks = TaskSet(backoff_s=0.001, clock=lambda: now)
    tasks.start("digging", work)
    async with asyncio.timeout(LONG_S):
        await again.wait()
    assert tasks.failing
    now = 61.0
    assert tasks.failing == {}
    assert tasks.restarts == {"digging": 1}
    await tasks.close()


async def test_pauses_grow_and_a_steady_run_resets_them(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    runs = 0

    async def work() -> None:
        nonlocal now, runs
        runs += 1
        if runs == 4:
            now += 61
        raise ValueError

    tasks = TaskSet(backoff_s=0.001, longest_backoff_s=0.004, clock=lambda: now)
    tasks.start("digging", work)
    async with asyncio.timeout(LONG_S):
        while runs < 6:
            await asyncio.sleep(0.001)
    await tasks.close()
    pauses = [record.args[1] for record in caplog.records if isinstance(record.args, tuple)]
    assert pauses[:5] == [0.001, 0.002, 0.004, 0.001, 0.002]


async def test_the_end_of_an_essential_task_ends_the_daemon_with_a_sentence() -> None:
    async def fails() -> None:
        raise OSError("the socket is gone")

    async def returns() -> None:
        return

    for work, why in ((fails, "OSError: the socket is gone"), (returns, "it returned")):
        tasks = TaskSet()
        tasks.start("HTTP server", work, on_failure="end")
        with pytest.raises(DaemonError, match=f"`HTTP server` ended .*{why}"):
            async with asyncio.timeout(LONG_S):
                await tasks.until(asyncio.Event())
        await tasks.close()


async def test_a_stop_is_no_failure() -> None:
    stop, leave = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        await leave.wait()

    tasks = TaskSet()
    tasks.start("HTTP server", serve, on_failure="end")
    asyncio.get_running_loop().call_soon(stop.set)
    await tasks.until(stop)
    leave.set()
    await tasks.join("HTTP server")
    await tasks.close()
    assert tasks.failing == {}


async def test_joining_a_task_that_waits_for_its_restart_ends_the_wait() -> None:
    failed = asyncio.Event()

    async def work() -> None:
        failed.set()
        raise ValueError

    tasks = TaskSet(backoff_s=3600)
    tasks.start("digging", work)
    async with asyncio.timeout(LONG_S):
        await failed.wait()
        await tasks.join("digging")


async def test_a_cancellation_from_inside_counts_as_a_failure() -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lost.cancel()
            await lost
        await asyncio.Event().wait()

    tasks = TaskSet(backoff_s=0.001)
    tasks.start("digging", work)
    async with asyncio.timeout(LONG_S):
        while runs < 2:
            await asyncio.sleep(0.001)
    assert tasks.restarts == {"digging": 1}
    await tasks.close()


async def test_what_may_fail_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("no model")

    tasks = TaskSet(backoff_s=0.001)
    tasks.start("warm-up", work, on_failure="log")
    async with asyncio.timeout(LONG_S):
        await tasks.join("warm-up")
    assert "no model" in caplog.text
    assert tasks.restarts == {"warm-up": 0}
    await tasks.close()


async def test_a_gateway_whose_http_server_fails_ends_with_a_sentence(tmp_path: Path) -> None:
    def ready(_: str) -> None:
        raise BrokenPipeError("the terminal is gone")

    thresholds = gc.get_threshold()
    config = GatewayConfig.model_validate({"listen": {"port": 0}})
    launch = Launch(config, tmp_path / "pointsman.yaml", GatewayConfig, tmp_path / "state", ready)
    try:
        with pytest.raises(DaemonError, match=r"`HTTP server` ended .*the terminal is gone"):
            async with asyncio.timeout(LONG_S):
                await serve(launch, asyncio.Event())
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_backoff_doubles_up_to_its_longest_delay_and_starts_over_after_a_reset() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


async def test_spawned_work_runs_once_and_its_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet()

    async def fail() -> None:
        raise ValueError("broken on purpose")

    await asyncio.wait([tasks.spawn(fail())])
    await tasks.close()
    assert "a background task failed" in caplog.text
    assert "broken on purpose" in caplog.text


async def test_closing_a_set_ends_spawned_work_and_may_be_repeated() -> None:
    tasks = TaskSet()
    work = tasks.spawn(asyncio.sleep(3600))
    await tasks.close()
    await tasks.close()
    assert work.cancelled()
