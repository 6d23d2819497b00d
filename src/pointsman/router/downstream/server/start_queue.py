"""Limits how many child processes start at the same time, and decides which server starts next."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum

MOST_AT_ONCE = 8
SLOT_S = 5.0  # a start that takes longer (a download, a hang) releases its slot


class Rank(IntEnum):
    """Lower ranks start first; equal ranks start in order of arrival."""

    RAN_BEFORE = 0
    NEW = 1
    FAILING = 2


class StartQueue:
    """Limits concurrent starts. A start holds a slot from the spawn until the handshake has succeeded or failed."""

    def __init__(self, most: int = MOST_AT_ONCE, slot_s: float = SLOT_S) -> None:
        self._free = most
        self._held = 0
        self._slot_s = slot_s
        self._order = itertools.count()
        self._waiting: list[tuple[Rank, int, asyncio.Future[None]]] = []  # a heap

    def hold(self) -> None:
        """Start nothing before `resume`. Called before the first start."""
        self._held, self._free = self._free, 0

    def resume(self) -> None:
        held, self._held = self._held, 0
        for _ in range(held):
            self._release()

    @asynccontextmanager
    async def slot(self, rank: Rank) -> AsyncGenerator[None]:
        await self._acquire(rank)
        lease = _Lease(self._release)
        expiry = asyncio.get_running_loop().call_later(self._slot_s, lease.end)
        try:
            yield
        finally:
            expiry.cancel()
            lease.end()

    async def _acquire(self, rank: Rank) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was granted at the same moment
            raise

    def _release(self) -> None:
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class _Lease:
    """A slot that is released once, by its holder or by its expiry."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def end(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()
