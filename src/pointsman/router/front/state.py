"""What all requests of the front share: the gateway behind it, our own ids, and who is under way."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pointsman.core.model import Caller, Json
from pointsman.core.seams import Gateway
from pointsman.router.front.http.failures import Clock, Failures
from pointsman.router.front.http.unread import UnreadBudget

if TYPE_CHECKING:
    from pointsman.router.front.exchange import Exchange

Instructions = Callable[[Caller], str | None]
"""What a client is told to do with us; it depends on what its project shows."""


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
    ) -> None:
        self.loop = asyncio.get_running_loop()  # kept, because looking it up is a system call on 3.11
        self.gateway = gateway
        self.server_info = server_info
        self.instructions = instructions
        self.failures = Failures(clock)
        self.ping_s = ping_s
        self.resume_s = resume_s  # how long a legacy client that lost its stream is expected back
        self.unread = unread  # of all answers
        self._prefix = secrets.token_hex(6)
        self._count = itertools.count(1)
        self.stopping = False  # nothing new is let in
        self.running: set[Exchange] = set()
        self._idle: asyncio.Future[None] | None = None  # somebody waits for it
        self._beside: set[asyncio.Task[Any]] = set()

    def new_id(self) -> str:
        """Unique in this process by the count, and among processes by the prefix."""
        return f"{self._prefix}-{next(self._count):x}"

    def beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Let `work` run on its own; a failure is logged under `name`."""
        task = self.loop.create_task(work)
        self._beside.add(task)
        task.add_done_callback(lambda done: self._left_alone(name, done))

    def leave(self, exchange: Exchange) -> None:
        self.running.discard(exchange)
        if self._idle is not None and not self.running and not self._idle.done():
            self._idle.set_result(None)

    async def idle(self, timeout_s: float) -> None:
        """Wait until nothing is under way, at most `timeout_s`."""
        if not self.running:
            return
        self._idle = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._idle,), timeout=timeout_s)

    def cancel_all(self) -> None:
        for exchange in list(self.running):
            exchange.cancel()

    def _left_alone(self, name: str, task: asyncio.Task[Any]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.report(name, error)
