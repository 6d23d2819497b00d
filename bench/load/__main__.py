"""`python -m bench.load`: a process that reads a spec, warms up, waits for a line, makes the load and reports."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Protocol

import msgspec
import uvloop

from bench.load.http import HttpLoad
from bench.load.report import Spec, Tally
from bench.load.stdio import StdioLoad

WARM_UP_S = 0.5


class Load(Protocol):
    """Repeats a call until it is stopped."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def _load(spec: Spec, tally: Tally) -> Load:
    return HttpLoad(spec, tally) if spec.kind == "http" else StdioLoad(spec, tally)


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
