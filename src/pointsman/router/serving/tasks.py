"""Owns background tasks: logs a failure, and restarts the task with backoff or ends the daemon."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Literal

from msgspec import Struct, field

BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
STEADY_S = 60.0  # a run that lasts this long resets the backoff

Work = Callable[[], Awaitable[object]]
OnFailure = Literal["restart", "end", "log"]

logger = logging.getLogger(__name__)


class Backoff:
    """Exponential backoff: each delay is twice the one before, up to `longest_s`, until `reset`."""

    __slots__ = ("_first_s", "_longest_s", "_next_s")

    def __init__(self, first_s: float = 0.5, longest_s: float = 30.0) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        """The delay that is due now; the one after it is longer."""
        delay_s = self._next_s
        self._next_s = min(delay_s * 2, self._longest_s)
        return delay_s

    async def wait(self, unless: asyncio.Event | None = None) -> None:
        """Wait for the delay that is due now, or until `unless` is set."""
        if unless is None:
            await asyncio.sleep(self.next_s())
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self.next_s()):
                await unless.wait()

    def reset(self) -> None:
        self._next_s = self._first_s


class DaemonError(Exception):
    """An essential task ended, so the daemon ends. `str(error)` is for the person at the terminal."""


class _Owned(Struct, eq=False):
    name: str
    work: Work
    on_failure: OnFailure
    backoff: Backoff
    task: asyncio.Task[None] | None = None
    joined: asyncio.Event = field(default_factory=asyncio.Event)  # its end is expected from now on
    began: float = 0.0
    reason: str = ""  # why the last run failed
    restarts: int = 0


class TaskSet:
    """The background tasks of one owner, which closes the set.

    `start` runs a named task under supervision: one that returns is done, unless it is essential (`on_failure="end"`).
    `spawn` runs one piece of work without a name.
    """

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
        self._spawned: set[asyncio.Task[None]] = set()
        self._fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, name: str, work: Work, *, on_failure: OnFailure = "restart") -> asyncio.Task[None]:
        """Run `work`. On failure "restart" it with exponential backoff, "end" the daemon, or only "log" it."""
        owned = self._owned[name] = _Owned(name, work, on_failure, Backoff(self._backoff_s, self._longest_backoff_s))
        owned.task = asyncio.get_running_loop().create_task(self._run(owned), name=name)
        return owned.task

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` once. When it fails, the failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._spawned.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("a background task failed", exc_info=failure)

    async def drain(self, timeout_s: float) -> None:
        """Wait for the spawned work to end, at most `timeout_s`."""
        if self._spawned:
            await asyncio.wait(self._spawned, timeout=timeout_s)

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
        """Wait for the end of a task that is about to end; it is not restarted."""
        owned = self._owned[name]
        owned.joined.set()
        if owned.task is not None:
            await asyncio.gather(owned.task, return_exceptions=True)

    async def cancel(self, *names: str) -> None:
        """Cancel these tasks and wait for their end."""
        named = [self._owned[name] for name in names if name in self._owned]
        for owned in named:
            owned.joined.set()
        await _cancel_all(owned.task for owned in named if owned.task is not None)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end; a task that closes its own set is not cancelled."""
        await self.cancel(*self._owned)
        await _cancel_all(self._spawned)
        if self._fatal.done() and not self._fatal.cancelled():
            self._fatal.exception()  # read, so that asyncio does not report it once more
        self._fatal.cancel()

    @property
    def restarts(self) -> dict[str, int]:
        return {name: owned.restarts for name, owned in self._owned.items()}

    @property
    def failing(self) -> dict[str, str]:
        """The reason of each task that failed and has not been running steadily since."""
        return {name: owned.reason for name, owned in self._owned.items() if owned.reason and not self._steady(owned)}

    def report(self) -> dict[str, str]:
        """For `/health`: the failing tasks, if there are any."""
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
            owned.backoff.reset()
        owned.reason = _named(failure)
        pause_s = owned.backoff.next_s()
        logger.error("background task `%s` failed and is restarted in %g s", owned.name, pause_s, exc_info=failure)
        owned.began = self._clock()  # a long pause is no steady run
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await owned.joined.wait()

    def _end(self, owned: _Owned, failure: BaseException | None) -> None:
        reason = _named(failure) if failure is not None else "it returned"
        logger.error("essential task `%s` ended: %s", owned.name, reason, exc_info=failure)
        step = "The log above has the details; fix the cause and start it again."
        if not self._fatal.done():
            self._fatal.set_exception(
                DaemonError(f"Pointsman stopped, because its task `{owned.name}` ended ({reason}). {step}")
            )


async def _cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    others = [task for task in tasks if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _failure(work: Work) -> BaseException | None:
    """Run `work` and return what it raised. A cancellation that was not requested of this task is a failure, too."""
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
