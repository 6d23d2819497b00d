"""`python -m bench.load`: a process that reads a spec, warms up, waits for a line, makes the load and reports."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Literal, Protocol

import msgspec
import uvloop

from bench.wire import Era

WARM_UP_S = 0.5


class Spec(msgspec.Struct, frozen=True):
    """Call one tool over and over, `connections` calls at a time, for `seconds`."""

    kind: Literal["http", "stdio"]
    target: str  # a URL, or a Python module to start
    era: Era
    tool: str
    arguments: list[dict[str, object]]  # taken in turn
    expect: str  # every good answer has it
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
    sample: str  # of a bad answer

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds


class Tally:
    """Times of the answers. Until `begin`, they are forgotten."""

    def __init__(self, expect: str) -> None:
        self._expect = expect.encode()
        self.begin()

    def begin(self) -> None:
        self._times: list[float] = []
        self._bad = 0
        self._sample = b""
        self._began = time.perf_counter()

    def add(self, sent_at: float, answer: bytes) -> None:
        self._times.append(time.perf_counter() - sent_at)
        if self._expect not in answer or b'"isError":true' in answer:
            self._bad += 1
            self._sample = self._sample or answer

    def report(self) -> Report:
        seconds = time.perf_counter() - self._began
        times = sorted(self._times) or [float("nan")]
        p50, p95, p99 = (times[min(len(times) - 1, int(len(times) * part))] * 1000 for part in (0.5, 0.95, 0.99))
        sample = self._sample[:500].decode(errors="replace")
        return Report(len(self._times), self._bad, seconds, p50, p95, p99, sample)


class Load(Protocol):
    """Something that calls until it is stopped."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def _load(spec: Spec, tally: Tally) -> Load:
    if spec.kind == "http":
        from bench.load_http import HttpLoad

        return HttpLoad(spec, tally)
    from bench.load_stdio import StdioLoad

    return StdioLoad(spec, tally)


async def main() -> None:
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=Spec)
    tally = Tally(spec.expect)
    load = _load(spec, tally)
    await load.start()
    await asyncio.sleep(WARM_UP_S)
    gc.collect()
    gc.freeze()
    print("warm", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    tally.begin()
    await asyncio.sleep(spec.seconds)
    report = tally.report()
    await load.stop()
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
