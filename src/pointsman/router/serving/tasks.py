"""Owns a daemon's background tasks: a failure is logged, and the task is restarted with backoff or ends the daemon."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
STEADY_S = 60.0  # a run that lasts this long resets the backoff

Work = Callable[[], Awaitable[object]]
OnFailure = Literal["restart", "end", "log"]

logger = logging.getLogger(__name__)


class DaemonError(Exception):
    """An essential task ended, so the daemon ends. `str(error)` is for the person at the terminal."""


@dataclass(slots=True, eq=False)
class _Owned:
    name: str
    work: Work
    on_failure: OnFailure
    backoff_s: float
    task: asyncio.Task[None] | None = None
    joined: asyncio.Event = field(default_factory=asyncio.Event)  # its end is expected from now on
    began: float = 0.0
    reason: str = ""  # why the last run failed
    restarts: int = 0


class TaskSet:
    """Named tasks. A task that returns is done, unless it is essential (`on_failure="end"`)."""

    def __init__(
        self,
        *,
        backoff_s: float = BACKOFF_S,
        longest_backoff_s: float = LONGEST_BACKOFF_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backoff_s = backoff_s
        self._longest_backoff_s = longest_backoff_s
        self._clock = clock
        self._owned: dict[str, _Owned] = {}
        self._fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, name: str, work: Work, *, on_failure: OnFailure = "restart") -> asyncio.Task[None]:
        """Run `work`. When it fails: "restart" it with exponential backoff, "end" the daemon, or only "log" it."""
        owned = self._owned[name] = _Owned(name, work, on_failure, self._backoff_s)
        owned.task = asyncio.get_running_loop().create_task(self._run(owned), name=name)
        return owned.task

    async def until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. Raises DaemonError when an essential task ends first."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((stopped, self._fatal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._fatal.done():
            self._fatal.result()

    async def join(self, name: str) -> None:
        """Wait for a task that was asked to end; it is not restarted."""
        owned = self._owned[name]
        owned.joined.set()
        if owned.task is not None:
            await asyncio.gather(owned.task, return_exceptions=True)

    async def cancel(self, *names: str) -> None:
        """Cancel these tasks and wait for their end."""
        tasks = [owned.task for name in names if (owned := self._owned.get(name)) and owned.task is not None]
        for name in names:
            if name in self._owned:
                self._owned[name].joined.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        await self.cancel(*self._owned)
        if self._fatal.done():
            self._fatal.exception()  # read, so that asyncio does not report it once more
        self._fatal.cancel()

    @property
    def restarts(self) -> dict[str, int]:
        return {name: owned.restarts for name, owned in self._owned.items()}

    @property
    def failing(self) -> dict[str, str]:
        """Why each task failed that has not been running steadily since."""
        return {name: owned.reason for name, owned in self._owned.items() if owned.reason and not self._steady(owned)}

    def report(self) -> dict[str, str]:
        """For `/health`: which tasks are failing, and nothing where none is."""
        names = ", ".join(f"`{name}`" for name in self.failing)
        return {"tasks": f"Restarted after a failure: {names}. The log has the reason."} if names else {}

    def _steady(self, owned: _Owned) -> bool:
        return self._clock() - owned.began >= STEADY_S

    async def _run(self, owned: _Owned) -> None:
        while True:
            owned.began = self._clock()
            failure = await _failure(owned.work)
            if owned.on_failure == "end" and not owned.joined.is_set():
                self._end(owned, failure)
                return
            if failure is None:
                return
            if owned.on_failure != "restart" or owned.joined.is_set():
                logger.error("background task `%s` failed", owned.name, exc_info=failure)
                return
            await self._back_off(owned, failure)
            if owned.joined.is_set():
                return
            owned.restarts += 1

    async def _back_off(self, owned: _Owned, failure: BaseException) -> None:
        if self._steady(owned):
            owned.backoff_s = self._backoff_s
        owned.reason = _named(failure)
        pause_s, owned.backoff_s = owned.backoff_s, min(owned.backoff_s * 2, self._longest_backoff_s)
        logger.error("background task `%s` failed and is restarted in %g s", owned.name, pause_s, exc_info=failure)
        owned.began = self._clock()  # a long pause is no steady run
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await owned.joined.wait()

    def _end(self, owned: _Owned, failure: BaseException | None) -> None:
        reason = _named(failure) if failure is not None else "it returned"
        logger.error("essential task `%s` ended: %s", owned.name, reason, exc_info=failure)
        step = "The log above has the details; start it again when the cause is gone."
        if not self._fatal.done():
            self._fatal.set_exception(
                DaemonError(f"Pointsman stopped, because its task `{owned.name}` ended ({reason}). {step}")
            )


async def _failure(work: Work) -> BaseException | None:
    """What one run raised. A cancellation that nobody asked this task for is a failure like any other."""
    task = asyncio.current_task()
    try:
        await work()
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        return error
    except Exception as error:
        return error
    return None


def _named(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
