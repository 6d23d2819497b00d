"""Samples the figures of the metrics every few seconds, so that the page can draw the last hour.

A sample costs one pass over the counters in a thread; calls do not notice it.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from itertools import pairwise

from msgspec import Struct

from pointsman.router.observe.metrics import QUANTILES, CallFigures, Metrics

SAMPLE_S = 10.0
MINUTES = 60


class Minute(Struct, frozen=True):
    """What happened in one minute of the last hour."""

    calls: int
    errors: int
    latencies_ms: tuple[float, ...]  # of the latest calls at its end, by QUANTILES; empty: it had no calls


class _Sample(Struct, frozen=True):
    calls: int
    errors: int
    latencies_ms: tuple[float, ...]


_NOTHING = _Sample(0, 0, ())  # before the start


class RecentFigures:
    """The counts of the last hour; `run` it as a task."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        kept = int(MINUTES * 60 / SAMPLE_S) + 2
        self._moments: deque[float] = deque(maxlen=kept)
        self._samples: deque[_Sample] = deque(maxlen=kept)

    async def run(self) -> None:
        while True:
            sample = _sample(await self._metrics.figures())
            self._moments.append(time.monotonic())
            self._samples.append(sample)
            await asyncio.sleep(SAMPLE_S)

    def minutes(self, latest: CallFigures) -> list[Minute]:
        """The last 60 minutes up to the given figures, the oldest first."""
        now = time.monotonic()
        moments, samples = [*self._moments, now], [*self._samples, _sample(latest)]

        def at(moment: float) -> _Sample:
            index = bisect_right(moments, moment)
            return samples[index - 1] if index else _NOTHING

        edges = [at(now - 60.0 * ago) for ago in range(MINUTES, -1, -1)]
        return [_minute(before, after) for before, after in pairwise(edges)]


def _sample(figures: CallFigures) -> _Sample:
    total = figures.total
    latencies = tuple(total.quantiles[share] * 1000 for share in QUANTILES if share in total.quantiles)
    return _Sample(total.calls, total.errors, latencies)


def _minute(before: _Sample, after: _Sample) -> Minute:
    calls = max(after.calls - before.calls, 0)
    return Minute(calls, max(after.errors - before.errors, 0), after.latencies_ms if calls else ())
