"""Bounds what each token adds to the audit: a token bucket of bytes, and one row for repeated refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from pointsman.core.errors import RateLimitedError
from pointsman.router.audit.rows import Intent, Outcome

BURST_S = 30  # a token that was silent for so long may write so many seconds' worth at once
WINDOW_S = 10.0  # in which refusals of one kind become one row
REPEATED = frozenset({"rate_limited", "overloaded"})  # refusals that a client in a loop repeats by the thousand

Clock = Callable[[], float]


class TokenBucket:
    """Holds `burst` at the most and fills up at `per_s`. What is taken after the fact may leave it in debt."""

    __slots__ = ("_at", "left")

    def __init__(self, burst: float, now: float) -> None:
        self.left = burst
        self._at = now

    def fill(self, burst: float, per_s: float, now: float) -> float:
        """What is left now."""
        self.left = left = min(burst, self.left + (now - self._at) * per_s)
        self._at = now
        return left

    def take(self, amount: float) -> None:
        self.left -= amount


class RowRate:
    """One bucket for each token. Bytes are counted, because they are what pushes the rows of others out."""

    def __init__(self, bytes_per_s: Callable[[], float] | None) -> None:
        """None: without a limit."""
        self._bytes_per_s = bytes_per_s
        self._per_s = 0.0  # as it was last asked for
        self._buckets: dict[str, TokenBucket] = {}

    def wait_s(self, token_id: str, now: float) -> float:
        """0 where the token may write another row; otherwise the time until it may."""
        if self._bytes_per_s is None:
            return 0.0
        per_s = self._bytes_per_s()
        if per_s != self._per_s:
            self._per_s = per_s
            self._buckets.clear()  # a reload: the new burst holds for all
        bucket = self._buckets.get(token_id)
        if bucket is None:
            bucket = self._buckets[token_id] = TokenBucket(BURST_S * per_s, now)
        if bucket.left > 0:
            return 0.0  # filled up only when it is empty, which most tokens never see
        left = bucket.fill(BURST_S * per_s, per_s, now)
        return 0.0 if left > 0 else (1 - left) / per_s

    def wrote(self, token_id: str, size: int) -> None:
        bucket = self._buckets.get(token_id)
        if bucket is not None:
            bucket.take(size)


def too_many_rows(wait_s: float) -> RateLimitedError:
    return RateLimitedError(
        "The call was not made: this token's calls fill the audit faster than they may. Call less often, or send less "
        "text with each call, and repeat this one later; the operator sets `limits.audit_bytes_per_s`.",
        max(1, math.ceil(wait_s)),
    )


@dataclass(slots=True)
class _Repeats:
    until: float
    intent: Intent | None = None  # of the first one that has no row of its own
    outcome: Outcome | None = None
    count: int = 0


class RefusalCounter:
    """Refusals of one token and code: the first one has its row at once, those of the next seconds share one."""

    def __init__(self) -> None:
        self._repeats: dict[tuple[str | None, str, str | None], _Repeats] = {}

    def is_first(self, intent: Intent, outcome: Outcome, now: float) -> bool:
        """Whether the row is to be written now. Others are counted, and come out of `due`."""
        key = (intent.token, intent.kind, outcome.code)
        known = self._repeats.get(key)
        if known is None:
            self._repeats[key] = _Repeats(now + WINDOW_S)
            return True
        if known.intent is None:
            known.intent, known.outcome = intent, outcome
        known.count += 1
        return False

    def due(self, now: float) -> Iterator[tuple[Intent, Outcome]]:
        """The shared rows whose window is over, each with its number of repeats."""
        for key, known in list(self._repeats.items()):
            if known.until > now:
                continue
            del self._repeats[key]
            if known.intent is not None and known.outcome is not None:
                repeats = known.count if known.count > 1 else None
                yield known.intent, msgspec.structs.replace(known.outcome, repeats=repeats)
