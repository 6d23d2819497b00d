"""A total deadline for one call: nothing that a server sends prolongs it, and the time that a person takes is free."""

from __future__ import annotations

import asyncio
from types import TracebackType

from pointsman.catalog.model import Json
from pointsman.router.seams import BackChannel


class Deadline:
    """`async with Deadline(60) as deadline`: raises TimeoutError at its end. Runs on the loop's monotonic clock."""

    __slots__ = ("_asked", "_entered", "_left_s", "_loop", "_timeout")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._left_s = seconds
        self._timeout = asyncio.timeout(seconds)
        self._asked = 0  # questions under way
        self._entered = False

    async def __aenter__(self) -> Deadline:
        await self._timeout.__aenter__()
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        await self._timeout.__aexit__(kind, error, trace)

    def pausing(self, back: BackChannel) -> BackChannel:
        """`back`, with the clock standing still while the client is asked."""
        return _PausingBack(self, back)

    def pause(self) -> None:
        self._asked += 1
        if self._asked > 1 or not self._running():
            return
        due = self._timeout.when()
        assert due is not None  # it is None only between pause and resume
        self._left_s = due - self._loop.time()
        self._timeout.reschedule(None)

    def resume(self) -> None:
        self._asked -= 1
        if self._asked == 0 and self._running():
            self._timeout.reschedule(self._loop.time() + max(self._left_s, 0.0))

    def _running(self) -> bool:
        """False once the call is over: an answer to a question may arrive after that."""
        return self._entered and not self._timeout.expired()


class _PausingBack:
    __slots__ = ("_back", "_deadline", "tell")

    def __init__(self, deadline: Deadline, back: BackChannel) -> None:
        self._deadline = deadline
        self._back = back
        self.tell = back.tell

    async def ask(self, method: str, params: Json) -> Json:
        self._deadline.pause()
        try:
            return await self._back.ask(method, params)
        finally:
            self._deadline.resume()
