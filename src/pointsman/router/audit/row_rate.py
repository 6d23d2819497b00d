"""Limits what each token writes to the audit: a token bucket of bytes, and one row for repeated refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from pointsman.config.model import CurrentConfig, Limits
from pointsman.core.errors import OVERLOADED, RateLimitedError
from pointsman.router.audit.rows import Intent, Outcome

MAX_BUCKETS = 20_000  # tokens are bounded by the configuration; those who sign in are not
BURST_S = 300  # capacity of a bucket, in seconds of its rate: no load test of some minutes exceeds it
BURST_SHARE = 4  # but at most one part of so many of the whole audit
WINDOW_S = 10.0  # in which equal refusals are coalesced into one row
REPEATED = frozenset(
    {RateLimitedError.code, OVERLOADED, "slow_down"}
)  # refusals that a retrying client repeats thousands of times


class TokenBucket:
    """Holds at most `burst` and refills at `per_s`. Users subtract from `left`, which may become negative."""

    __slots__ = ("_at", "left")

    def __init__(self, burst: float, now: float) -> None:
        self.left = burst
        self._at = now

    def fill(self, burst: float, per_s: float, now: float) -> float:
        """Refill, and return what is left."""
        self.left = left = min(burst, self.left + (now - self._at) * per_s)
        self._at = now
        return left


class RowRate:
    """One bucket per token. Counts bytes, because the size of the database is what evicts other tokens' rows."""

    def __init__(self, current: CurrentConfig) -> None:
        self._current = current
        self._limits: Limits | None = None  # that the buckets have
        self._burst = 0  # bytes
        self._buckets: dict[str, TokenBucket] = {}

    def wait_s(self, token_id: str, now: float) -> float:
        """Return the time until the token may write another row; 0 if it may now."""
        if self._limits is not self._current.limits:
            self._reload(self._current.limits)
        bucket = self._buckets.get(token_id)
        if bucket is not None and bucket.left > 0:
            return 0.0  # refill only an empty bucket, which most tokens never have
        per_s = self._current.limits.audit_bytes_per_s
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._buckets.clear()
            bucket = self._buckets[token_id] = TokenBucket(self._burst, now)
        left = bucket.fill(self._burst, per_s, now)
        return 0.0 if left > 0 else (1 - left) / per_s

    def _reload(self, limits: Limits) -> None:
        before, self._limits = self._burst, limits
        self._burst = min(BURST_S * limits.audit_bytes_per_s, self._current.audit.max_bytes // BURST_SHARE)
        if before != self._burst:
            self._buckets.clear()  # the new burst applies to all

    def wrote(self, token_id: str, size: int) -> None:
        bucket = self._buckets.get(token_id)
        if bucket is not None:
            bucket.left -= size


def too_many_rows(wait_s: float) -> RateLimitedError:
    return RateLimitedError(
        "The call was not made: this token's calls write more to the audit than its limit allows. Call less often, or "
        "send less text per call, and retry this one later; the operator sets `limits.audit_bytes_per_s`.",
        max(1, math.ceil(wait_s)),
    )


@dataclass(slots=True)
class _Repeats:
    until: float
    intent: Intent | None = None  # of the first refusal without its own row
    outcome: Outcome | None = None
    count: int = 0


class RefusalCounter:
    """Coalesces refusals of one token and code: the first gets its row at once, later ones in the window share one."""

    def __init__(self) -> None:
        self._repeats: dict[tuple[str | None, str, str | None], _Repeats] = {}

    def is_first(self, intent: Intent, outcome: Outcome, now: float) -> bool:
        """Whether to write the row now. Others are counted, and `due` returns them."""
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
        """Return the shared rows whose window has ended, each with its number of repeats."""
        for key, known in list(self._repeats.items()):
            if known.until > now:
                continue
            del self._repeats[key]
            if known.intent is not None and known.outcome is not None:
                repeats = known.count if known.count > 1 else None
                yield known.intent, msgspec.structs.replace(known.outcome, repeats=repeats)
