"""Where tools run: in a bounded number of threads, so that a slow one holds up neither the others nor the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

THREADS = 16
THREADS_OF_ONE_TOOL = 4

Result = TypeVar("Result")


class Workers:
    """A call that is given up is waited for no longer; its thread ends when the tool does, and is busy until then."""

    def __init__(self, threads: int = THREADS, of_one_tool: int = THREADS_OF_ONE_TOOL) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._of_one_tool = of_one_tool
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def run(self, tool: str, work: Callable[[], Result]) -> Result:
        turn = self._turns.setdefault(tool, asyncio.Semaphore(self._of_one_tool))
        await turn.acquire()
        loop = asyncio.get_running_loop()
        running = self._pool.submit(work)

        def over(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended before the tool
                loop.call_soon_threadsafe(turn.release)

        running.add_done_callback(over)
        return await asyncio.wrap_future(running)
