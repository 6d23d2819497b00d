"""Memory, open handles and threads of a process over time, as a table and as growth of the second half."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.process import anonymous_mb

LINES = 20
ENFORCED_FROM_S = 600.0  # shorter runs are still warming up in their second half
ALLOWED_MB = 3.0  # growth over the second half, by the slope of a straight line through all samples
ALLOWED_HANDLES = 10.0
ALLOWED_THREADS = 3.0


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    memory_mb: float  # without pages of files
    handles: int
    threads: int


class Figures:
    """Takes samples of `pid`, and prints every so many of them as a line."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._began = time.monotonic()
        self._printed = 0
        self.samples: list[Sample] = []
        print(f"{'s':>6}{'MB':>9}{'handles':>9}{'threads':>9}{'requests':>10}", flush=True)

    def take(self, requests: int) -> None:
        at_s = time.monotonic() - self._began
        handles, threads = (len(os.listdir(f"/proc/{self._pid}/{folder}")) for folder in ("fd", "task"))
        sample = Sample(at_s, anonymous_mb(self._pid), handles, threads)
        self.samples.append(sample)
        if at_s >= self._printed * self._seconds / LINES:
            self._printed += 1
            print(f"{at_s:6.0f}{sample.memory_mb:9.1f}{handles:9}{threads:9}{requests:10,}", flush=True)

    def problems(self) -> list[str]:
        """Prints the growth of the second half, and says what grew too much in a run that is long enough."""
        second = [sample for sample in self.samples if sample.at_s >= self._seconds / 2]
        limits: tuple[tuple[str, Callable[[Sample], float], float], ...] = (
            ("memory, MB", lambda sample: sample.memory_mb, ALLOWED_MB),
            ("handles", lambda sample: sample.handles, ALLOWED_HANDLES),
            ("threads", lambda sample: sample.threads, ALLOWED_THREADS),
        )
        enforced = self._seconds >= ENFORCED_FROM_S
        found: list[str] = []
        for name, figure, allowed in limits:
            grown = growth([sample.at_s for sample in second], [figure(sample) for sample in second])
            print(f"  growth of the second half: {name:10}{grown:+8.1f}  (at most {allowed:+.0f}", end="")
            print(")" if enforced else f", enforced in runs of at least {ENFORCED_FROM_S:.0f} s)")
            if enforced and grown > allowed:
                found.append(f"{name} grew by {grown:.1f} in the second half; {allowed:.0f} are allowed")
        return found


def growth(times: Sequence[float], values: Sequence[float]) -> float:
    """Slope of the least-squares line, times the span: one peak at the end does not count as growth."""
    if len(times) < 2:
        return 0.0
    mean_time, mean_value = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - mean_time) ** 2 for at in times)
    pairs = zip(times, values, strict=True)
    slope = sum((at - mean_time) * (value - mean_value) for at, value in pairs) / spread if spread else 0.0
    return slope * (times[-1] - times[0])
