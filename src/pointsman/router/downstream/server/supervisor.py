"""Keeps one server connected: reconnects indefinitely, with exponential backoff."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from pointsman.router.downstream.connection import Connect, Connection, ConnectionLostError, SignInNeededError
from pointsman.router.downstream.repeated_failures import RepeatedFailures, times_text
from pointsman.router.downstream.server.connection_lease import ConnectionLease
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.downstream.server.start_queue import Rank, StartQueue
from pointsman.router.downstream.stdio.launch import lasts
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.serving.tasks import Backoff, TaskSet

logger = logging.getLogger(__name__)

FIRST_DELAY_S = 0.25  # a child that exited is back within a second
LONGEST_DELAY_S = 60.0
RETRY_ON_REQUEST_S = 5.0  # a request for a failed server ends the delay, but at most this often
STEADY_AFTER_S = 60.0  # a connection that lasts this long resets the backoff
FAILING_AFTER = 2  # failures in a row, after which a server that ran before starts after all others

_NOT_BEFORE_A_CHANGE = "it is not started before its entry, or what the reason names, is changed"


class BackoffPolicy(Struct, frozen=True):
    """Clock, sleep and jitter, injected so that tests can control them."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    monotonic: Callable[[], float] = time.monotonic


class Supervisor:
    """One task that opens, watches and closes connections, one after the other.

    With `starts` each attempt waits for a slot, because `connect` starts a process.
    """

    def __init__(
        self,
        server: DownstreamServer,
        connect: Connect,
        policy: BackoffPolicy,
        starts: StartQueue | None = None,
        record: ServerRecord | None = None,
        downloader: str | None = None,
    ) -> None:
        self._server = server
        self._connect = connect
        self._policy = policy
        self._starts = starts
        self._record = record or ServerRecord()
        self._failures = 0  # in a row: attempts that failed, and connections that did not last
        self._backoff = Backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
        self._leases: dict[ConnectionLease, asyncio.Task[None] | None] = {}  # not closed yet; the task closes it
        self._retry = asyncio.Event()
        self._last_attempt = policy.monotonic()
        self._attempted = False
        self._downloader = downloader  # the program that may download the server first, such as `uvx`
        self._logged = RepeatedFailures(policy.monotonic)
        self._silent = False  # the last failure was not logged again
        self._stop_reconnecting = False
        self._tasks = TaskSet()
        self._task: asyncio.Task[None] | None = None
        self.settled = asyncio.Event()  # the first attempt is over, however it ended

    def start(self) -> None:
        self._server.request_reconnect = self._retry_on_request
        self._task = self._tasks.start(f"supervisor of {self._server.id}", self._run)

    def retry_now(self) -> None:
        """Retry without further delay. Does nothing while it is connected or connecting."""
        self._retry.set()

    @property
    def connected(self) -> bool:
        return bool(self._leases)

    def stop_reconnecting(self) -> None:
        """Keep the connection, but do not open another one."""
        self._stop_reconnecting = True

    def cancel(self) -> None:
        """Make no more attempts, and leave the server object alone from now on."""
        if self._task is not None:
            self._task.cancel()
        self.settled.set()

    async def stop(self, drain_s: float) -> None:
        """Cancel; calls under way have `drain_s` to finish, then the connection is closed."""
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(lease.retire(drain_s) for lease in self._leases))
        await asyncio.gather(*(task for task in self._leases.values() if task is not None))

    def _retry_on_request(self) -> None:
        if self._policy.monotonic() - self._last_attempt >= RETRY_ON_REQUEST_S:
            self.retry_now()

    async def _run(self) -> None:
        while not self._stop_reconnecting:
            connection = await self._attempt_in_turn()
            if connection is not None:
                await self._until_ended(connection)
            if not self._stop_reconnecting:
                await self._back_off()

    def _log_failure(self, reason: str) -> None:
        """Log a reason once, and then at growing distances."""
        times = self._logged.count(reason)
        self._silent = times is None
        if times is not None:
            then = _NOT_BEFORE_A_CHANGE if lasts(reason) else "retrying with backoff"
            logger.warning("server %s: %s%s; %s", self._server.id, reason, times_text(times), then)

    async def _attempt_in_turn(self) -> Connection | None:
        if self._starts is None:
            return await self._attempt()
        async with self._starts.slot(self._rank()):
            return await self._attempt()

    def _rank(self) -> Rank:
        if self._failures >= (FAILING_AFTER if self._record.ran else 1):
            return Rank.FAILING
        return Rank.RAN_BEFORE if self._record.ran else Rank.NEW

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures >= FAILING_AFTER:
            self._record.ran = False

    async def _attempt(self) -> Connection | None:
        if self._attempted:
            self._server.restarts += 1
        self._attempted = True
        self._last_attempt = self._policy.monotonic()
        limit_s = self._server.timeouts.connect_s
        reason: str | ConnectionLostError
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect(self._server.notice)
        except TimeoutError:
            reason = not_ready(limit_s, self._downloader)
        except ConnectionLostError as error:
            reason = error
        except Exception:
            # Whatever it is, only this server is affected, and it is retried.
            logger.exception("server %s could not be started", self._server.id)
            reason = "it could not be started; the gateway's log has the reason"
        self._server.fail(reason)
        self._count_failure()
        self.settled.set()
        return None

    async def _until_ended(self, connection: Connection) -> None:
        lease = self._server.attach(connection)
        if self._failures < FAILING_AFTER:
            self._record.ran = True
        known = connection.introduction
        if not self._silent:
            logger.info("server %s is running (%s, %s)", self._server.id, known.era, known.version)
        self._leases[lease] = None
        self.settled.set()
        since = self._policy.monotonic()
        steady = asyncio.get_running_loop().call_later(STEADY_AFTER_S, self._reset_failures)
        reason: str | SignInNeededError
        try:
            reason = await connection.ended()
        except SignInNeededError as needed:
            reason = needed
        finally:
            steady.cancel()
        self._server.detach(lease, reason)
        if self._policy.monotonic() - since >= STEADY_AFTER_S:
            self._reset_failures()
        else:
            self._count_failure()
        # Calls that are still being answered (HTTP) keep their connection, without delaying the next attempt.
        self._leases[lease] = self._tasks.spawn(self._close(lease))

    def _reset_failures(self) -> None:
        self._backoff.reset()
        self._logged.reset()
        self._failures = 0
        self._record.ran = True

    async def _close(self, lease: ConnectionLease) -> None:
        await lease.retire(self._server.timeouts.call_s)
        self._leases.pop(lease, None)

    async def _back_off(self) -> None:
        """Wait for the delay with jitter, or until `retry_now`."""
        delay_s = self._backoff.next_s() * (0.5 + 0.5 * self._policy.random())
        self._log_failure(self._server.status.reason)
        self._retry.clear()
        sleep = asyncio.ensure_future(self._policy.sleep(delay_s))
        retry = asyncio.ensure_future(self._retry.wait())
        try:
            await asyncio.wait((sleep, retry), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            retry.cancel()


def not_ready(limit_s: float, downloader: str | None) -> str:
    """The reason of a start that took too long."""
    reason = f"it was not ready within {limit_s:g} s"
    if downloader is None:
        return reason
    return (
        f"{reason}; `{downloader}` may still be downloading it. "
        "Run its command once in a terminal, or raise `timeouts.connect_s`"
    )
