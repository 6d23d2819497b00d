"""Work that takes long is done in a thread, once for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}

    async def run(self, key: K, work: Callable[[], T]) -> T:
        """One who leaves does not cost the others their answer."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(asyncio.to_thread(work))
            running.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(running)

    def _done(self, key: K, task: asyncio.Task[T]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # asked for, so that it is not reported as lost where everybody has left
