"""`python -m bench.workers`: calls a second with one process and with two workers, interleaved."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.calls import ROUNDS, SECONDS, interleaved, row
from bench.gateway import http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.report import Spec
from bench.process import http_servers, tree_mb
from bench.programs import OURS, Program

WORKERS = (1, 2)
CONNECTIONS = 32
SERVERS = {"http0": "http", "stdio": "stdio, one process", "each": "stdio, one for each"}
HEAD = ("server", "workers", "calls/s", "CPU ms", "p50 ms", "p99 ms", "load CPU ms")


async def workers(*, seconds: float = SECONDS, rounds: int = ROUNDS, counts: Sequence[int] = WORKERS) -> None:
    """Print one row for each server and number of workers, and what two workers gain."""
    print(
        f"Workers: {CONNECTIONS} connections of modern clients. Load and servers use the {os.cpu_count()} cores, too."
    )
    print(f"CPU of all processes of the gateway for a call. Medians of {rounds} rounds, in turn.\n")
    async with AsyncExitStack() as stack:
        downstream = await stack.enter_async_context(http_servers(1, 0))
        entries = http_entries(downstream.urls) | {
            "stdio": stdio_entry(),
            "each": stdio_entry() | {"placement": "each"},
        }
        found: dict[int, Program] = {}
        for count in counts:
            gateway = await stack.enter_async_context(measured_gateway(entries, workers=count))
            for server in entries:
                await until_it_serves(gateway, server)
            found[count] = Program(OURS, gateway.pid, gateway.url, gateway.headers)
        row(HEAD)
        row("-" * len(name) for name in HEAD)
        gains = [await _measured(server, found, seconds, rounds) for server in SERVERS]
        print("\n" + "\n".join(gain for gain in gains if gain))
        sizes = ", ".join(f"{tree_mb(one.pid):.0f} MB with {count}" for count, one in found.items())
        print(f"Memory of all processes (Pss), with three servers: {sizes}", flush=True)


async def _measured(server: str, found: dict[int, Program], seconds: float, rounds: int) -> str:
    specs: dict[str, tuple[Spec, int | None]] = {
        str(count): (one.spec(server, "modern", CONNECTIONS, seconds), one.pid) for count, one in found.items()
    }
    figures = await interleaved(specs, rounds)
    for count, one in figures.items():
        times = (one.cpu_ms, one.p50_ms, one.p99_ms, one.load_cpu_ms)
        row((SERVERS[server], count, f"{one.per_second:,.0f}", *(f"{value:.3f}" for value in times)))
    first, *more = figures
    return "\n".join(
        f"{SERVERS[server]}: {count} workers / {first}: {figures[count].per_second / figures[first].per_second:.2f} "
        f"calls/s, {figures[count].cpu_ms / figures[first].cpu_ms:.2f} CPU a call"
        for count in more
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of 0.5 s: rough, in seconds")
    parser.add_argument("--seconds", type=float, help=f"of each load (default {SECONDS})")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, help="default: 1 2")
    options = parser.parse_args()
    run = workers(
        seconds=options.seconds or (0.5 if options.quick else SECONDS),
        rounds=options.rounds or (1 if options.quick else ROUNDS),
        counts=options.workers,
    )
    asyncio.run(run)


if __name__ == "__main__":
    main()
