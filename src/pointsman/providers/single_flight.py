"""Single-flight: long work runs in a thread, once for all callers that need it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Coalesces concurrent runs with the same key."""

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}

    async def run(self, key: K, work: Callable[[], T]) -> T:
        """Run `work`, or wait for the run under way. Cancelling one caller does not cancel the others' run."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(asyncio.to_thread(work))
            running.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(running)

    def _done(self, key: K, task: asyncio.Task[T]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it if all callers are gone
