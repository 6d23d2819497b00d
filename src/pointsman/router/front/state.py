"""State that all requests of the front share: the gateway, request ids, running requests, the log of failures."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from pointsman.core.model import Caller, Json
from pointsman.core.seams import Gateway, Tracer
from pointsman.router.front.http.unread import UnreadBudget
from pointsman.router.serving.timer_queue import TimerQueue

if TYPE_CHECKING:
    from pointsman.router.front.exchange import Exchange

log = logging.getLogger(__name__)

Clock = Callable[[], float]  # monotonic seconds; passed in so that tests can set it
WallClock = Callable[[], float]  # seconds since the epoch
Instructions = Callable[[Caller], Awaitable[str | None]]
"""The `instructions` of the handshake, which depend on the caller's project and servers."""


async def no_instructions(caller: Caller) -> None:
    return None


_LOGGED_PER_MINUTE = 10
WATCH_AFTER_S = 0.05  # most calls finish sooner and never need a disconnect watcher


class FailureLog:
    """Logs unexpected exceptions, throttled: a client that can provoke one must not be able to fill the disk."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock()
        self._logged = 0
        self._suppressed = 0

    def report(self, method: str, error: BaseException) -> None:
        now = self._clock()
        if now - self._since >= 60:
            if self._suppressed:
                log.error("%d more failures were not logged", self._suppressed)
            self._since, self._logged, self._suppressed = now, 0, 0
        if self._logged >= _LOGGED_PER_MINUTE:
            self._suppressed += 1
            return
        self._logged += 1
        log.error("%.64r failed", method, exc_info=error)


class FrontState:
    def __init__(
        self,
        gateway: Gateway,
        server_info: Json,
        instructions: Instructions,
        clock: Clock,
        ping_s: float,
        resume_s: float,
        unread: UnreadBudget,
        replica: str = "",
        tracer: Tracer | None = None,
    ) -> None:
        self.replica = replica  # in ids that refer to something here; empty: there are no other replicas
        self.loop = asyncio.get_running_loop()  # cached, because looking it up is a system call on 3.11
        self.gateway = gateway
        self.tracer = tracer  # None: nothing is traced
        self.server_info = server_info
        self.instructions = instructions
        self.failures = FailureLog(clock)
        self.ping_s = ping_s
        self.resume_s = resume_s  # how long a legacy client that lost its stream may take to resume it
        self.unread = unread  # by all clients
        prefix = secrets.token_hex(6)
        # Unique in this process by the count, and among processes by the prefix.
        self.request_ids: Iterator[str] = (f"{prefix}-{number:x}" for number in itertools.count(1))
        self.stopping = False  # no new requests are admitted
        self.running: set[Exchange] = set()
        self.unwatched: TimerQueue[Exchange] = TimerQueue(self.loop, WATCH_AFTER_S, lambda exchange: exchange.watch())
        self.idle: asyncio.Future[None] | None = None  # set by `until_idle`; done when no request is running
        self._background: set[asyncio.Task[Any]] = set()

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background and log a failure under `name`."""
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(lambda done: self._finish_background(name, done))

    async def until_idle(self, timeout_s: float) -> None:
        """Wait until no request is running, at most `timeout_s`."""
        if not self.running:
            return
        self.idle = asyncio.get_running_loop().create_future()
        await asyncio.wait((self.idle,), timeout=timeout_s)

    def cancel_all(self) -> None:
        for exchange in list(self.running):
            exchange.cancel()

    def _finish_background(self, name: str, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.report(name, error)
