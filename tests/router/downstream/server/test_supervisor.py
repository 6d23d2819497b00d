"""One supervisor keeps one server connected: it never gives up, and its pauses are as they should be."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pointsman.config.model import Limits
from pointsman.config.sections.server import Timeouts
from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Json
from pointsman.router.downstream.connection import (
    Call,
    Connect,
    Connection,
    ConnectionLostError,
    Introduction,
    OnNotification,
)
from pointsman.router.downstream.http.connect import connect_http
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.downstream.server.supervisor import STEADY_AFTER_S, BackoffPolicy, Supervisor
from pointsman.router.downstream.stdio.launch import AS_CONFINED
from tests.router.downstream.http_parts import PATIENCE_S, Back, front_request, text_of, until
from tests.servers.http_mcp import serving


class Time:
    """A clock that stands still until it is moved, a sleep that ends when it is told to, and a fixed chance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.chance = 1.0
        self.naps: list[float] = []
        self._awake = asyncio.Semaphore(0)
        self.pace = BackoffPolicy(self._sleep, lambda: self.chance, lambda: self.now)

    async def _sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await self._awake.acquire()
        self.now += seconds

    def wake(self) -> None:
        self._awake.release()

    async def next_nap(self, count: int) -> float:
        await until(lambda: len(self.naps) >= count)
        return self.naps[count - 1]


class Cable:
    """A connection without a server at its end, which a test can cut."""

    def __init__(self) -> None:
        self.introduction = Introduction("legacy", "2025-11-25", {}, {})
        self.closed = False
        self._cut: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def cut(self, reason: str) -> None:
        self._cut.set_result(reason)

    async def request(self, call: Call) -> Json:
        return {}

    async def ended(self) -> str:
        return await asyncio.shield(self._cut)

    async def close(self) -> None:
        self.closed = True


def server_for(timeouts: Timeouts | None = None) -> DownstreamServer:
    return DownstreamServer(
        "s",
        "s",
        timeouts or Timeouts(),
        generations=itertools.count(1),
        clock=lambda: 0.0,
        on_change=lambda server_id, change: None,
    )


@asynccontextmanager
async def supervised(server: DownstreamServer, connect: Connect, pace: BackoffPolicy) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(server, connect, pace)
    async with asyncio.timeout(PATIENCE_S):
        supervisor.start()
        try:
            yield supervisor
        finally:
            await supervisor.stop(1.0)


def failing(reasons: Callable[[int], str | None]) -> tuple[Connect, list[Cable]]:
    """Attempt `n` fails with `reasons(n)`, or succeeds where that is None."""
    cables: list[Cable] = []
    attempts = itertools.count(1)

    async def connect(on_notification: OnNotification) -> Connection:
        reason = reasons(next(attempts))
        if reason is not None:
            raise ConnectionLostError(reason)
        cables.append(Cable())
        return cables[-1]

    return connect, cables


async def test_pauses_double_from_a_quarter_second_to_a_minute_and_attempts_never_end() -> None:
    time, server = Time(), server_for()
    connect, _ = failing(lambda attempt: f"attempt {attempt}")
    async with supervised(server, connect, time.pace):
        for count, pause_s in enumerate([0.25, 0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60], start=1):
            assert await time.next_nap(count) == pause_s
            assert (server.status.state, server.status.reason) == ("failed", f"attempt {count}")
            time.wake()


async def test_a_supervisor_that_fails_itself_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    time, server = Time(), server_for()
    cables: list[Cable] = []

    class Frayed(Cable):
        async def ended(self) -> str:
            raise ValueError("an end that is none")

    async def connect(on_notification: OnNotification) -> Connection:
        cables.append(Cable() if cables else Frayed())
        return cables[-1]

    async with supervised(server, connect, time.pace):
        await until(lambda: len(cables) == 2 and server.status.state == "running")
    assert "`supervisor of s` failed and is restarted" in caplog.text
    assert "ValueError: an end that is none" in caplog.text


async def test_chance_shortens_a_pause_to_no_less_than_half() -> None:
    time, server = Time(), server_for()
    time.chance = 0.0
    connect, _ = failing(lambda attempt: "no")
    async with supervised(server, connect, time.pace):
        assert await time.next_nap(1) == 0.125


async def test_a_connection_that_ends_is_opened_again_after_the_shortest_pause() -> None:
    time, server = Time(), server_for()
    connect, cables = failing(lambda attempt: None)
    async with supervised(server, connect, time.pace) as supervisor:
        await supervisor.settled.wait()
        before = server.generation
        cables[0].cut("its process ended")
        assert await time.next_nap(1) == 0.25
        assert (server.status.state, server.status.reason) == ("failed", "its process ended")
        time.wake()
        await until(lambda: server.status.state == "running")
        assert server.generation > before
        assert server.restarts == 1
        assert cables[0].closed


async def test_a_crash_loop_is_slowed_down_and_steady_running_makes_good_for_it() -> None:
    time, server = Time(), server_for()
    connect, cables = failing(lambda attempt: None)
    async with supervised(server, connect, time.pace):
        for count, pause_s in enumerate([0.25, 0.5, 1.0], start=1):
            await until(lambda count=count: len(cables) == count)  # type: ignore[misc]
            cables[-1].cut("crashed")
            assert await time.next_nap(count) == pause_s
            time.wake()
        await until(lambda: len(cables) == 4)
        time.now += STEADY_AFTER_S
        cables[-1].cut("crashed")
        assert await time.next_nap(4) == 0.25


async def test_a_poke_ends_a_pause() -> None:
    time, server = Time(), server_for()
    connect, _ = failing(lambda attempt: "no" if attempt == 1 else None)
    async with supervised(server, connect, time.pace) as supervisor:
        await time.next_nap(1)
        supervisor.retry_now()
        await until(lambda: server.status.state == "running")


async def test_a_request_for_a_failed_server_ends_its_pause_but_not_at_once() -> None:
    time, server = Time(), server_for()
    connect, _ = failing(lambda attempt: "no" if attempt == 1 else None)
    async with supervised(server, connect, time.pace):
        await time.next_nap(1)
        for now, state in ((4.9, "failed"), (5.0, "running")):
            time.now = now
            with pytest.raises(ServerUnavailableError):
                await server.request("tools/call", {"name": "x"}, front_request(), Back())
            for _ in range(10):
                await asyncio.sleep(0)
            assert server.status.state == state


async def test_a_connect_that_hangs_ends_at_connect_s_and_is_tried_again() -> None:
    time, server = Time(), server_for(Timeouts(connect_s=0.05))
    cancelled = 0

    async def hang(on_notification: OnNotification) -> Connection:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        finally:
            cancelled += 1
        raise AssertionError

    async with supervised(server, hang, time.pace):
        await time.next_nap(1)
        assert server.status.reason == "it was not ready within 0.05 s"
        time.wake()
        await time.next_nap(2)
    assert cancelled == 2


async def test_a_slow_start_of_a_downloader_says_that_it_may_still_be_downloading() -> None:
    time, server = Time(), server_for(Timeouts(connect_s=0.05))

    async def hang(on_notification: OnNotification) -> Connection:
        await asyncio.Event().wait()
        raise AssertionError

    supervisor = Supervisor(server, hang, time.pace, downloader="npx")
    supervisor.start()
    await time.next_nap(1)
    await supervisor.stop(0)
    assert server.status.reason.startswith("it was not ready within 0.05 s; `npx` may still be downloading it")
    assert "`timeouts.connect_s`" in server.status.reason


async def test_the_same_failure_is_logged_once_and_then_at_growing_distances(caplog: pytest.LogCaptureFixture) -> None:
    time, server = Time(), server_for()
    attempts = itertools.count(1)

    async def connect(on_notification: OnNotification) -> Connection:
        raise ConnectionLostError(f"its process {next(attempts)} exited with code 1")

    async with supervised(server, connect, time.pace):
        for number in range(1, 61):
            await time.next_nap(number)
            time.wake()
    told = [record.getMessage() for record in caplog.records if "retrying with backoff" in record.getMessage()]
    assert "process 1 exited" in told[0]
    assert 3 <= len(told) <= 5, told  # in 52 minutes: at once, and after 1, 5 and 21
    assert all("times since it was last logged" in line for line in told[1:])


async def test_another_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    time, server = Time(), server_for()
    reasons = iter(["it fell", "it fell", "it burned", "it fell"])

    async def connect(on_notification: OnNotification) -> Connection:
        raise ConnectionLostError(next(reasons, "it fell"))

    async with supervised(server, connect, time.pace):
        for number in range(1, 5):
            await time.next_nap(number)
            time.wake()
    told = [record.getMessage() for record in caplog.records if "retrying with backoff" in record.getMessage()]
    assert [line.split(": ")[1].split(";")[0] for line in told] == ["it fell", "it burned"]


async def test_a_refusal_that_lasts_is_not_logged_as_retried(caplog: pytest.LogCaptureFixture) -> None:
    time, server = Time(), server_for()

    async def connect(on_notification: OnNotification) -> Connection:
        raise ConnectionLostError(f"`x` cannot be started {AS_CONFINED}: bubblewrap is not installed")

    async with supervised(server, connect, time.pace):
        await time.next_nap(1)
    [told] = [record.getMessage() for record in caplog.records if "bubblewrap" in record.getMessage()]
    assert told.endswith("; it is not started before its entry, or what the reason names, is changed")


async def test_an_error_nobody_thought_of_costs_one_attempt_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    time, server = Time(), server_for()
    attempts = itertools.count(1)

    async def connect(on_notification: OnNotification) -> Connection:
        if next(attempts) == 1:
            raise ZeroDivisionError("/secret/path")
        return Cable()

    async with supervised(server, connect, time.pace):
        await time.next_nap(1)
        assert "secret" not in server.status.reason
        time.wake()
        await until(lambda: server.status.state == "running")
    assert "ZeroDivisionError" in caplog.text


async def test_stop_waits_for_what_is_under_way_and_then_closes() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("modern") as http:
        server = server_for()
        supervisor = Supervisor(
            server,
            lambda notified: connect_http(http.url, {}, "auto", 5.0, Limits(), notified),
            BackoffPolicy(),
        )
        supervisor.start()
        await supervisor.settled.wait()
        params = {"name": "wait", "arguments": {"a": 1}}
        call = asyncio.create_task(server.request("tools/call", params, front_request(), Back()))
        await http.arrived.acquire()
        stopping = asyncio.create_task(supervisor.stop(PATIENCE_S))
        http.gate.set()
        assert text_of(await call) == '{"a": 1}'
        await stopping


async def test_stop_cuts_what_does_not_end_in_time() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("modern") as http:
        server = server_for()
        supervisor = Supervisor(
            server,
            lambda notified: connect_http(http.url, {}, "auto", 5.0, Limits(), notified),
            BackoffPolicy(),
        )
        supervisor.start()
        await supervisor.settled.wait()
        call = asyncio.create_task(server.request("tools/call", {"name": "wait"}, front_request(), Back()))
        await http.arrived.acquire()
        await supervisor.stop(0.05)
        with pytest.raises(ServerUnavailableError):
            await call


async def test_a_server_that_stops_taking_connections_fails_and_heals_by_itself() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("modern") as http:
        server = server_for()
        connect: Connect = lambda notified: connect_http(http.url, {}, "auto", 5.0, Limits(), notified)  # noqa: E731
        async with supervised(server, connect, BackoffPolicy()) as supervisor:
            await supervisor.settled.wait()
            await http.stop()
            with pytest.raises(ServerUnavailableError):
                await server.request("tools/call", {"name": "echo"}, front_request(), Back())
            await until(lambda: server.status.state == "failed")
            assert server.status.reason == "it refused the connection"
            await http.start()
            await until(lambda: server.status.state == "running")
            params = {"name": "echo", "arguments": {"a": 1}}
            assert text_of(await server.request("tools/call", params, front_request(), Back())) == '{"a": 1}'
