"""Tasks that belong to a connection, and the pauses of a stream that is opened again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class TaskSet:
    """Holds the tasks that it started until they are done, and ends them with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Backoff:
    """How long to wait before a standing stream is opened again: longer each time, until one has carried something."""

    def __init__(self, first_s: float = _FIRST_PAUSE_S) -> None:
        self._first_s = first_s
        self._next_s = first_s

    def reset(self) -> None:
        self._next_s = self._first_s

    async def wait(self) -> None:
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)
