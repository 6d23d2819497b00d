"""Keeps one server connected, for ever: each end and each failure leads to another attempt, later and later."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pointsman.router.downstream.connection import Connect, Connection, ConnectionLostError
from pointsman.router.downstream.server.connection_lease import ConnectionLease
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.downstream.server.start_queue import Rank, StartQueue
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.serving.tasks import Backoff, TaskSet

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.25  # a child that died is back within a second
LONGEST_PAUSE_S = 60.0
WANTED_AFTER_S = 5.0  # a caller who asks for a failed server cuts its pause short, but not more often than this
STEADY_AFTER_S = 60.0  # a connection that lasted this long makes good for the failures before it
FAILING_AFTER = 2  # failures in a row, after which a server that ran before starts after all others


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Time and chance, handed in so that tests can arrange them."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    monotonic: Callable[[], float] = time.monotonic


class Supervisor:
    """One task, which opens, watches and closes the connections that one recipe (`connect`) makes.

    With `starts` each attempt waits for a slot: `connect` starts a process.
    """

    def __init__(
        self,
        server: DownstreamServer,
        connect: Connect,
        pace: BackoffPolicy,
        starts: StartQueue | None = None,
        record: ServerRecord | None = None,
    ) -> None:
        self._server = server
        self._connect = connect
        self._pace = pace
        self._starts = starts
        self._record = record or ServerRecord()
        self._failures = 0  # in a row: attempts that failed, and connections that did not last
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._lives: dict[ConnectionLease, asyncio.Task[None] | None] = {}  # not closed yet, and what closes it
        self._poked = asyncio.Event()
        self._last_attempt = pace.monotonic()
        self._tried = False
        self._told = ""  # the reason that was logged last
        self._last_connection = False
        self._tasks = TaskSet()
        self._task: asyncio.Task[None] | None = None
        self.settled = asyncio.Event()  # the first attempt is over, however it ended

    def start(self) -> None:
        self._server.wanted = self._wanted
        self._task = self._tasks.start(f"supervisor of {self._server.id}", self._run)

    def poke(self) -> None:
        """Try again now. Does nothing while it is connected or connecting."""
        self._poked.set()

    @property
    def connected(self) -> bool:
        return bool(self._lives)

    def last_connection(self) -> None:
        """Serve on, but do not connect again."""
        self._last_connection = True

    def dismiss(self) -> None:
        """No more attempts, and from this moment nothing is done to the server object."""
        if self._task is not None:
            self._task.cancel()
        self.settled.set()

    async def stop(self, drain_s: float) -> None:
        """Dismissed; what is under way may finish within `drain_s`, then the connection is closed."""
        self.dismiss()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(live.retire(drain_s) for live in self._lives))
        await asyncio.gather(*(task for task in self._lives.values() if task is not None))

    def _wanted(self) -> None:
        if self._pace.monotonic() - self._last_attempt >= WANTED_AFTER_S:
            self.poke()

    async def _run(self) -> None:
        while not self._last_connection:
            connection = await self._attempt_in_turn()
            if connection is not None:
                await self._watch(connection)
            if not self._last_connection:
                await self._pause()

    def _tell_once(self, reason: str) -> None:
        """A server that fails for ever with the same words has said them once."""
        if reason != self._told:
            self._told = reason
            logger.warning("server %s: %s; it is tried again, with growing pauses", self._server.id, reason)

    async def _attempt_in_turn(self) -> Connection | None:
        if self._starts is None:
            return await self._attempt()
        async with self._starts.slot(self._rank()):
            return await self._attempt()

    def _rank(self) -> Rank:
        if self._failures >= (FAILING_AFTER if self._record.ran else 1):
            return Rank.FAILING
        return Rank.RAN_BEFORE if self._record.ran else Rank.NEW

    def _failed(self) -> None:
        self._failures += 1
        if self._failures >= FAILING_AFTER:
            self._record.ran = False

    async def _attempt(self) -> Connection | None:
        if self._tried:
            self._server.restarts += 1
        self._tried = True
        self._last_attempt = self._pace.monotonic()
        limit_s = self._server.timeouts.connect_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect(self._server.notice)
        except TimeoutError:
            reason = f"it was not ready within {limit_s:g} s"
        except ConnectionLostError as error:
            reason = str(error)
        except Exception:
            # Whatever it is, this server pays for it and nobody else, and it is tried again.
            logger.exception("server %s could not be started", self._server.id)
            reason = "it could not be started; the gateway's log has the reason"
        self._server.fail(reason)
        self._failed()
        self.settled.set()
        return None

    async def _watch(self, connection: Connection) -> None:
        live = self._server.attach(connection)
        self._told = ""
        if self._failures < FAILING_AFTER:
            self._record.ran = True
        known = connection.introduction
        logger.info("server %s is running (%s, %s)", self._server.id, known.era, known.version)
        self._lives[live] = None
        self.settled.set()
        since = self._pace.monotonic()
        steady = asyncio.get_running_loop().call_later(STEADY_AFTER_S, self._is_steady)
        try:
            reason = await connection.ended()
        finally:
            steady.cancel()
        self._server.detach(live, reason)
        if self._pace.monotonic() - since >= STEADY_AFTER_S:
            self._is_steady()
        else:
            self._failed()
        # Calls that are still being answered (HTTP) keep their connection, and do not hold up the next attempt.
        self._lives[live] = self._tasks.spawn(self._close(live))

    def _is_steady(self) -> None:
        self._backoff.reset()
        self._failures = 0
        self._record.ran = True

    async def _close(self, live: ConnectionLease) -> None:
        await live.retire(self._server.timeouts.call_s)
        self._lives.pop(live, None)

    async def _pause(self) -> None:
        """Wait for about as long as it is due, or until poked."""
        pause_s = self._backoff.next_s() * (0.5 + 0.5 * self._pace.random())
        self._tell_once(self._server.status.reason)
        self._poked.clear()
        nap = asyncio.ensure_future(self._pace.sleep(pause_s))
        poke = asyncio.ensure_future(self._poked.wait())
        try:
            await asyncio.wait((nap, poke), return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            poke.cancel()
