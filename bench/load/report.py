"""What a load is asked to do, and what it reports."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from bench.load.requests import Era

END = 4096  # of a large answer, the bytes at either end that are looked at


class Spec(msgspec.Struct, frozen=True):
    """Call one tool over and over, `connections` calls at a time, for `seconds`."""

    kind: Literal["http", "stdio"]
    target: str  # a URL, or a Python module to start
    era: Era
    tool: str
    arguments: list[dict[str, object]]  # taken in turn
    expect: str  # a substring of every good answer
    connections: int
    seconds: float
    headers: dict[str, str] = {}


class Report(msgspec.Struct, frozen=True):
    calls: int
    bad: int
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    cpu_ms: float  # of the load itself, a call
    sample: str  # of a bad answer

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds


class Tally:
    """Times of the answers since the last `begin`."""

    def __init__(self, expect: str) -> None:
        self._expect = expect.encode()
        self.begin()

    def begin(self) -> None:
        self._times: list[float] = []
        self._bad = 0
        self._sample = b""
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()

    def add(self, sent_at: float, answer: bytes) -> None:
        self._times.append(time.perf_counter() - sent_at)
        ends = answer if len(answer) < 2 * END else answer[:END] + answer[-END:]
        if self._expect not in ends or b'"isError":true' in ends:
            self._bad += 1
            self._sample = self._sample or answer

    def report(self) -> Report:
        seconds = time.perf_counter() - self._began
        times = sorted(self._times) or [seconds]  # no answer: longer than the load lasted
        p50, p95, p99 = (times[min(len(times) - 1, int(len(times) * part))] * 1000 for part in (0.5, 0.95, 0.99))
        sample = self._sample[:500].decode(errors="replace")
        cpu_ms = (time.process_time() - self._cpu_began) * 1000 / len(times)
        return Report(len(self._times), self._bad, seconds, p50, p95, p99, cpu_ms, sample)
