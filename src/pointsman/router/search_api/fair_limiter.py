"""How many searches run at the same time, and that no token has more than half of the places."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from pointsman.router.search_api.refusals import overloaded, share_is_taken

WAITING_FOR_EACH_PLACE = 8


class FairLimiter:
    """Those who find no place wait their turn for a while; a token that has its share lets others pass."""

    def __init__(self, total: int, wait_s: float) -> None:
        self._total = total
        self._wait_s = wait_s
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    def configure(self, total: int, wait_s: float) -> None:
        self._total, self._wait_s = total, wait_s
        self._seat()

    @property
    def taken(self) -> int:
        return self._taken.total()

    async def take(self, token_id: str) -> None:
        """Whoever takes a place gives it back. Raises ApiError 429, 503: there was none in time."""
        if not self._full() and not self._has_its_share(token_id):
            self._taken[token_id] += 1
            return
        waiting = sum(other == token_id for other, _ in self._waiting)
        if waiting >= self._share() * WAITING_FOR_EACH_PLACE:
            raise share_is_taken()
        if len(self._waiting) >= self._total * WAITING_FOR_EACH_PLACE:
            raise overloaded()
        await self._wait(token_id)

    def give_back(self, token_id: str) -> None:
        self._taken[token_id] -= 1
        if not self._taken[token_id]:
            del self._taken[token_id]
        self._seat()

    async def _wait(self, token_id: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (token_id, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            with suppress(ValueError):
                self._waiting.remove(entry)
            if turn.done() and not turn.cancelled():  # the place came in the moment of leaving
                self.give_back(token_id)
            if not isinstance(error, TimeoutError):
                raise
            raise (overloaded() if self._full() else share_is_taken()) from None

    def _seat(self) -> None:
        """Give free places to those who wait, in their order."""
        for entry in list(self._waiting):
            if self._full():
                return
            token_id, turn = entry
            if turn.done() or self._has_its_share(token_id):
                continue
            self._waiting.remove(entry)
            self._taken[token_id] += 1
            turn.set_result(None)

    def _full(self) -> bool:
        return self.taken >= self._total

    def _has_its_share(self, token_id: str) -> bool:
        return self._taken[token_id] >= self._share()

    def _share(self) -> int:
        return self._total // 2
