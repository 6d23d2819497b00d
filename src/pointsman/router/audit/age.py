"""The time by which audit rows are too old: the system clock, unless it is far from what the rows say."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pointsman.core.model import WallClock

_DAY_MS = 86_400_000
_BELIEVED_AFTER_S = 86_400.0  # a wrong clock has been noticed by then, and a right one must count in the end

logger = logging.getLogger(__name__)


class AgeClock:
    """Follows the system clock. A jump of more than a day is believed only after it has lasted for a day; until then
    the newest row, plus the time that has passed since, is the present. So a wrong clock deletes nothing."""

    def __init__(self, wall: WallClock, monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._known: tuple[float, float] | None = None  # a time in ms, and the monotonic time when it was so
        self._doubted_at: float | None = None

    def start_from(self, newest_ms: int | None) -> None:
        """Take the newest row of earlier runs as the time at which this one started; None where there is no row."""
        if newest_ms is not None:
            self._known = newest_ms, self._monotonic()
        self.now_ms()

    def now_ms(self) -> int:
        clock_ms, at = self._wall() * 1000, self._monotonic()
        known_ms, known_at = self._known or (clock_ms, at)
        expected_ms = known_ms + (at - known_at) * 1000
        if abs(clock_ms - expected_ms) > _DAY_MS:
            if self._doubted_at is None:
                self._doubted_at = at
                self._warn((clock_ms - expected_ms) / _DAY_MS)
            if at - self._doubted_at < _BELIEVED_AFTER_S:
                return int(min(clock_ms, expected_ms))  # where they disagree, keep more
        self._known, self._doubted_at = (clock_ms, at), None
        return int(clock_ms)

    def _warn(self, days: float) -> None:
        logger.warning(
            "the system clock is %.0f days %s the newest audit row; check the clock. Rows are not deleted by its time "
            "for a day",
            abs(days),
            "ahead of" if days > 0 else "behind",
        )
