"""Where uses are counted: in memory, with the counts of a day kept in a file, or in the store that gateways share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pointsman.core.model import WallClock
from pointsman.router.state.key_values import KeyValues, StateAwayError
from pointsman.router.state.rate_windows import DAY, MINUTE, Limit, Reached, Window, current, decode, encode, take

PREFIX: Final = "rate/"  # of all keys in the store
SAVE_EVERY_S: Final = 1.0  # a crash loses the counts of so long
RETRY_S: Final = 5.0  # after a failure of the shared store; until then no call waits for it
_MOST_AT_ONCE: Final = 1_000  # calls in one transaction

OF_IDENTITIES: Final = f"{PREFIX}token/@"  # the beginning of the keys of those who have signed in
MAX_WINDOWS: Final = 50_000  # limits of the configuration, and those of identities, which come and go

Limits = Sequence[Limit]

logger = logging.getLogger(__name__)


class LocalCounters:
    """Counts of this gateway alone. Those of a day survive its end, if there is a store: `run` saves them."""

    def __init__(self, store: KeyValues | None = None, clock: WallClock = time.time) -> None:
        self._store = store
        self._clock = clock
        self.windows: dict[str, Window] = {}
        self._unsaved: set[str] = set()
        self._wake = asyncio.Event()
        self._failing = False

    def take(self, limits: Limits) -> Reached | None:
        if len(self.windows) >= MAX_WINDOWS:
            self._evict()
        reached = take(self.windows, limits, self._clock())
        if reached is None and self._store is not None:
            kept = [limit.key for limit in limits if limit.period is DAY]
            if kept:
                self._unsaved.update(kept)
                self._wake.set()
        return reached

    def _evict(self) -> None:
        """Forget the windows of identities that have not called for a while; if all have, those that began first."""
        now = self._clock()
        kept = {key: one for key, one in self.windows.items() if not _is_over(key, one, now)}
        excess = [key for key in kept if key.startswith(OF_IDENTITIES)][: max(0, len(kept) - MAX_WINDOWS // 2)]
        for key in excess:
            del kept[key]
        self.windows = kept

    async def keep_only(self, limits: Collection[Limit], *, signed_in: bool = False) -> None:
        """Forget the windows of other limits, and read those of a day that were saved.

        Those of identities stay: what their limits are is known when they call.
        """
        keys = {limit.key for limit in limits}
        for key in self.windows.keys() - keys:
            if not key.startswith(OF_IDENTITIES):
                del self.windows[key]
        daily = {limit.key for limit in limits if limit.period is DAY} - self.windows.keys()
        if self._store is None or not (daily or signed_in):
            return
        try:
            saved = await asyncio.to_thread(self._store.list, PREFIX)
        except StateAwayError as error:
            logger.warning("the counts of daily rates could not be read, and begin at 0: %s", error)
            return
        of_identities = {key for key in saved if key.startswith(OF_IDENTITIES)} if signed_in else set[str]()
        for key in (daily & saved.keys()) | of_identities:
            self.windows.setdefault(key, decode(saved[key].value))

    async def run(self) -> None:
        """Save what was counted, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.save()
            await asyncio.sleep(SAVE_EVERY_S)

    async def save(self) -> None:
        keys, self._unsaved = self._unsaved & self.windows.keys(), set()
        if not keys or self._store is None:
            return
        saved = {key: (encode(self.windows[key]), float(DAY.life_s)) for key in keys}
        try:
            await asyncio.to_thread(self._store.change, tuple(saved), lambda now, values: saved)
        except StateAwayError as error:
            if not self._failing:
                logger.warning("the counts of daily rates cannot be saved: %s", error)
            self._failing = True
            self._unsaved |= keys
            self._wake.set()
        else:
            self._failing = False


def _is_over(key: str, window: Window, now: float) -> bool:
    """Whether nothing in the window of an identity counts any more."""
    return key.startswith(OF_IDENTITIES) and not current(window, DAY if key.endswith(DAY.name) else MINUTE, now)


class SharedCounters:
    """Counts of all gateways on one store. Calls that arrive together are counted in one transaction."""

    def __init__(self, store: KeyValues) -> None:
        self._store = store
        self._waiting: list[tuple[Limits, asyncio.Future[Reached | None]]] = []
        self._counting: asyncio.Task[None] | None = None
        self._away_until = float("-inf")

    async def take(self, limits: Limits) -> Reached | None:
        """Raises StateAwayError: count it elsewhere."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._away_until:
            raise StateAwayError
        answer: asyncio.Future[Reached | None] = loop.create_future()
        self._waiting.append((limits, answer))
        if self._counting is None or self._counting.done():
            self._counting = loop.create_task(self._count_waiting())
        return await answer

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.wait([self._counting])

    async def _count_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            try:
                counted = await asyncio.to_thread(self._count, [limits for limits, _ in batch])
            except StateAwayError as error:
                self._went_away(error, [answer for _, answer in batch])
                continue
            except BaseException:
                for _, answer in (*batch, *self._waiting):
                    answer.cancel()
                raise
            self._away_until = float("-inf")
            for (_, answer), reached in zip(batch, counted, strict=True):
                if not answer.done():
                    answer.set_result(reached)

    def _went_away(self, error: StateAwayError, answers: Sequence[asyncio.Future[Reached | None]]) -> None:
        if self._away_until == float("-inf"):
            logger.warning("rates are counted by this gateway alone: %s", error)
        self._away_until = asyncio.get_running_loop().time() + RETRY_S
        for answer in (*answers, *(each for _, each in self._waiting)):
            if not answer.done():
                answer.set_exception(error)
        self._waiting = []

    def _count(self, batch: Sequence[Limits]) -> list[Reached | None]:
        """Blocks."""
        life_s = {limit.key: float(limit.period.life_s) for limits in batch for limit in limits}
        counted: list[Reached | None] = []

        def change(now: float, values: Mapping[str, bytes]) -> dict[str, tuple[bytes, float]]:
            before = {key: decode(value) for key, value in values.items()}
            windows = dict(before)
            counted[:] = [take(windows, limits, now) for limits in batch]
            return {key: (encode(each), life_s[key]) for key, each in windows.items() if each != before.get(key)}

        self._store.change(tuple(life_s), change)
        return counted
