"""A total deadline for one call: nothing a server sends prolongs it, and the time a person takes to answer is free."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from pointsman.core.model import Json
from pointsman.core.seams import BackChannel
from pointsman.router.serving.shares import FairQueue


class Deadline:
    """`with Deadline(loop, 60) as deadline`: raises TimeoutError at its end.

    As `asyncio.timeout`, which looks the running loop up five times; on 3.11 each of them is a system call.
    """

    __slots__ = ("_asked", "_before", "_due", "_expired", "_left_s", "_loop", "_queue", "_task", "_timer", "_token_id")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, queue: FairQueue | None = None, token_id: str = ""
    ) -> None:
        """`queue`: whose slot the call holds, and gives up while the client is asked."""
        self._loop = loop
        self._queue = queue
        self._token_id = token_id
        self._left_s = seconds
        self._due = 0.0
        self._asked = 0  # questions under way
        self._expired = False
        self._before = 0  # cancellations of the task that are not ours
        self._task: asyncio.Task[Any] | None = None  # None: not entered, or over
        self._timer: asyncio.TimerHandle | None = None  # None: the clock stands still

    def __enter__(self) -> Deadline:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._run()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self._stop()
        if self._asked and self._queue is not None:
            self._queue.resume(self._token_id)  # the caller that took the slot gives it back
        assert task is not None
        if self._expired and task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def pausing(self, back: BackChannel) -> BackChannel:
        """`back`, with the clock standing still while the client is asked."""
        return _PausingBack(self, back)

    def pause(self) -> None:
        self._asked += 1
        if self._asked == 1 and self._task is not None and self._queue is not None:
            self._queue.pause(self._token_id)
        if self._asked == 1 and self._timer is not None:
            self._left_s = max(self._due - self._loop.time(), 0.0)
            self._stop()

    def resume(self) -> None:
        self._asked -= 1
        # The answer to a question may arrive when the call is over.
        if self._asked or self._task is None:
            return
        if self._queue is not None:
            self._queue.resume(self._token_id)
        if not self._expired:
            self._run()

    def _run(self) -> None:
        self._due = self._loop.time() + self._left_s
        self._timer = self._loop.call_later(self._left_s, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._expired = True
        assert self._task is not None
        self._task.cancel()


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
