"""Limits concurrent searches; one token may use at most half of the slots."""

from __future__ import annotations

import asyncio
from collections import Counter

from pointsman.router.search_api.errors import overloaded, token_share_exhausted
from pointsman.router.serving.shares import wait_for_slot

WAITING_PER_SLOT = 8


class FairLimiter:
    """Slots with a bounded queue in order of arrival; a token that uses its share is passed over."""

    def __init__(self, total: int, wait_s: float) -> None:
        self._total = total
        self._wait_s = wait_s
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    def configure(self, total: int, wait_s: float) -> None:
        self._total, self._wait_s = total, wait_s
        self._hand_out()

    @property
    def taken(self) -> int:
        return self._taken.total()

    async def take(self, token_id: str) -> None:
        """Take a slot; `give_back` it in the end. Raises ApiError 429, 503: none came free in time."""
        if not self._full() and not self._has_its_share(token_id):
            self._taken[token_id] += 1
            return
        waiting = sum(other == token_id for other, _ in self._waiting)
        if waiting >= self._share() * WAITING_PER_SLOT:
            raise token_share_exhausted()
        if len(self._waiting) >= self._total * WAITING_PER_SLOT:
            raise overloaded()
        await self._wait(token_id)

    def give_back(self, token_id: str) -> None:
        self._taken[token_id] -= 1
        if not self._taken[token_id]:
            del self._taken[token_id]
        self._hand_out()

    async def _wait(self, token_id: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (token_id, turn)
        self._waiting.append(entry)
        try:
            await wait_for_slot(
                turn,
                self._wait_s,
                withdraw=lambda: self._waiting.remove(entry),
                give_back=lambda: self.give_back(token_id),
            )
        except TimeoutError:
            raise (overloaded() if self._full() else token_share_exhausted()) from None

    def _hand_out(self) -> None:
        """Give free slots to waiting searches, in order of arrival."""
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
