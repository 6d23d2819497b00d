"""`python -m bench.growth`: what more tools, servers, sessions and larger results cost."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from bench.calls import Figures, interleaved, row
from bench.discovery import measure_discovery
from bench.gateway import http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.http import HttpConnection, open_connection, open_session
from bench.load.report import Report, Spec
from bench.process import http_servers, measure, rss_mb
from bench.programs import FLOOR, LAZY, OURS, Program, programs
from bench.servers.tools import PRODUCE
from tests.gateway_process import GatewayProcess

SECONDS = 1.5
ROUNDS = 3
CATALOGS = ((1, 200), (1, 1_000), (10, 20), (50, 20))  # servers, and tools of each
SESSIONS = (0, 1_000, 5_000)
SIZES = (1 << 10, 16 << 10, 256 << 10, 1 << 20, 8 << 20)
AT_A_TIME = 4  # large results
WHOLE = {"result_preview_chars": 0}
PREVIEW = "with preview"
PARTS = ("catalogs", "sessions", "sizes", "bystanders")


async def growth(*, seconds: float = SECONDS, rounds: int = ROUNDS, parts: Sequence[str] = PARTS) -> None:
    for part in parts:
        await {"catalogs": _catalogs, "sessions": _sessions, "sizes": _sizes, "bystanders": _bystanders}[part](
            seconds, rounds
        )
        print()


async def _catalogs(seconds: float, rounds: int) -> None:
    print("More servers and tools: Pointsman's CPU ms for a call (32 connections) and for a discovery (one)\n")
    _header("servers", "tools", "call", "/ first", "discovery", "/ first", "RSS MB")
    first: tuple[float, float] | None = None
    for servers, tools in CATALOGS:
        async with (
            http_servers(servers, tools - 2) as downstream,
            measured_gateway(http_entries(downstream.urls)) as gateway,
        ):
            for number in range(servers):
                await until_it_serves(gateway, f"http{number}")
            program = _ours(gateway)
            calls = await interleaved(
                {OURS: (program.spec(f"http{servers - 1}", "legacy", 32, seconds), gateway.pid)}, rounds
            )
            _, discovery = await measure_discovery(gateway, seconds)
            call = calls[OURS].cpu_ms
            first = first or (call, discovery)
            figures = (f"{call:.3f}", f"{call / first[0]:.2f}", f"{discovery:.2f}", f"{discovery / first[1]:.2f}")
            row((servers, f"{servers * tools:,}", *figures, f"{rss_mb(gateway.pid):.0f}"))


async def _sessions(seconds: float, rounds: int) -> None:
    print("More open sessions without calls: Pointsman's CPU ms for a call (32 connections)\n")
    _header("sessions", "call", "/ first", "p99 ms", "/ first", "RSS MB")
    limits = {"sessions": max(SESSIONS) + 100}
    async with http_servers(1, 0) as downstream, measured_gateway(http_entries(downstream.urls), limits) as gateway:
        await until_it_serves(gateway, "http0")
        connection = await open_connection(gateway.url)
        first: Figures | None = None
        opened = 0
        for sessions in SESSIONS:
            opened += await _open_sessions(connection, gateway, sessions - opened)
            spec = _ours(gateway).spec("http0", "legacy", 32, seconds)
            figures = (await interleaved({OURS: (spec, gateway.pid)}, rounds))[OURS]
            first = first or figures
            call, p99 = (figures.cpu_ms, first.cpu_ms), (figures.p99_ms, first.p99_ms)
            cells = [f"{call[0]:.3f}", f"{call[0] / call[1]:.2f}", f"{p99[0]:.1f}", f"{p99[0] / p99[1]:.2f}"]
            row((f"{sessions:,}", *cells, f"{rss_mb(gateway.pid):.0f}"))
        connection.transport.close()


async def _open_sessions(connection: HttpConnection, gateway: GatewayProcess, count: int) -> int:
    for _ in range(count):
        await open_session(connection, gateway.url, gateway.headers)
    return count


async def _sizes(seconds: float, rounds: int) -> None:
    print(f"Larger results, {AT_A_TIME} at a time, legacy client, HTTP server: CPU ms for a call, and ratios")
    print("(pointsman passes them on whole; its default over 40,000 characters is to store them: with preview)\n")
    names = (FLOOR, OURS, LAZY, PREVIEW)
    _header("bytes", *names, f"{OURS} / {FLOOR}", f"{OURS} / {LAZY}", f"p50 / {FLOOR}")
    async with (
        http_servers(1, 0) as downstream,
        programs(downstream, limits=WHOLE) as found,
        measured_gateway({**http_entries(downstream.urls), "stdio": stdio_entry()}) as preview,
    ):
        found = {**found, PREVIEW: _ours(preview)}
        for size in SIZES:
            specs = {
                name: (_large(found[name], size, seconds if size < 1 << 20 else 2 * seconds), found[name].pid)
                for name in names
                if name in found and (name != PREVIEW or size > 40_000)
            }
            figures = await interleaved(specs, rounds)
            cpu = [f"{figures[name].cpu_ms:.2f}" if name in figures else "-" for name in names]
            ours = figures[OURS]
            ratios = [f"{ours.cpu_ms / figures[n].cpu_ms:.2f}" if n in figures else "-" for n in (FLOOR, LAZY)]
            row((f"{size:,}", *cpu, *ratios, f"{ours.p50_ms / figures[FLOOR].p50_ms:.2f}"))


async def _bystanders(seconds: float, rounds: int) -> None:
    print(f"Small calls on one connection while {AT_A_TIME} results of 8 MB are under way all the time, in ms\n")
    _header("program", "alone p50", "p99", "beside p50", "p95", "p99", "p50 beside / alone", "large results/s")
    async with (
        http_servers(1, 0) as downstream,
        programs(downstream, limits=WHOLE) as found,
        measured_gateway({**http_entries(downstream.urls), "stdio": stdio_entry()}) as preview,
    ):
        found = {**found, PREVIEW: _ours(preview)}
        measured: dict[str, list[tuple[Report, Report, Report]]] = {}
        for _ in range(rounds):
            for name in (FLOOR, OURS, LAZY, PREVIEW):
                if name in found:
                    measured.setdefault(name, []).append(await _beside(found[name], seconds))
        for name, runs in measured.items():
            alone, small, large = sorted(runs, key=lambda run: run[1].p50_ms)[len(runs) // 2]
            times = (alone.p50_ms, alone.p99_ms, small.p50_ms, small.p95_ms, small.p99_ms)
            ratio = f"{small.p50_ms / alone.p50_ms:.1f}"
            row((name, *(f"{value:.2f}" for value in times), ratio, f"{large.per_second:.1f}"))


async def _beside(program: Program, seconds: float) -> tuple[Report, Report, Report]:
    small = program.spec("stdio", "legacy", 1, seconds)  # a process of its own, unlike the server of large results
    alone, _ = await measure(small)
    (beside, _), (large, _) = await asyncio.gather(measure(small), measure(_large(program, 8 << 20, seconds + 1.0)))
    return alone, beside, large


def _large(program: Program, size: int, seconds: float) -> Spec:
    return program.spec("http0", "legacy", AT_A_TIME, seconds, PRODUCE, {"size": size})


def _ours(gateway: GatewayProcess) -> Program:
    return Program(OURS, gateway.pid, gateway.url, gateway.headers)


def _header(*names: str) -> None:
    row(names)
    row("-" * len(name) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="one round of 0.7 s each: rough")
    options = parser.parse_args()
    seconds, rounds = (0.7, 1) if options.quick else (SECONDS, ROUNDS)
    asyncio.run(growth(seconds=seconds, rounds=rounds, parts=options.only))


if __name__ == "__main__":
    main()
