"""Decides when a failure that repeats is logged again: at once, then after 1, 4, 16 ... minutes, at most 6 hours."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from msgspec import Struct

FIRST_DISTANCE_S = 60.0
LONGEST_DISTANCE_S = 6 * 3600.0
_FACTOR = 4
_MOST_KEPT = 16  # different failures of one server
_NUMBER = re.compile(r"\d+")


class _Seen(Struct):
    logged_at: float
    distance_s: float
    times: int = 0  # since it was last logged


class RepeatedFailures:
    """The failures of one server. Two that differ in numbers only, such as process ids or times, are the same."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, _Seen] = {}

    def count(self, failure: str) -> int | None:
        """Return how often it happened since it was last logged, if it is to be logged now; None: not yet."""
        key, now = _NUMBER.sub("#", failure), self._monotonic()
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _MOST_KEPT:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = _Seen(now, FIRST_DISTANCE_S)
            return 1
        seen.times += 1
        if now - seen.logged_at < seen.distance_s:
            return None
        times, seen.times = seen.times, 0
        seen.logged_at, seen.distance_s = now, min(seen.distance_s * _FACTOR, LONGEST_DISTANCE_S)
        return times

    def reset(self) -> None:
        """The server has run for a while: the next failure is a new one."""
        self._seen.clear()


def times_text(times: int) -> str:
    return "" if times == 1 else f" ({times} times since it was last logged)"
