"""`python -m bench.calls`: a trivial tool through Pointsman, through a floor and through lazy-mcp, interleaved."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.gateway import HELLO
from bench.load.report import Report, Spec
from bench.load.requests import Era
from bench.process import HttpServers, http_servers, measure
from bench.programs import BOTH_ERAS, ECHO_FLOOR, FLOOR, LAZY, OURS, Program, programs

SECONDS = 1.0
ROUNDS = 3
CONNECTIONS = (1, 32)
SERVERS = ("http", "stdio")
DIRECT = "direct"
HEAD = ("server", "client", "conns", "program", "calls/s", "CPU ms", "p50 ms", "p95 ms", "p99 ms", "load CPU ms")
RATIOS = ("calls/s", "CPU", "p99")


@dataclass(frozen=True)
class Figures:
    """Medians of the rounds."""

    per_second: float
    cpu_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    load_cpu_ms: float


async def calls(
    *,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    servers: Sequence[str] = SERVERS,
    eras: Sequence[Era] = BOTH_ERAS,
    connections: Sequence[int] = CONNECTIONS,
    only: Sequence[str] = (),
) -> None:
    """Print one row for each program; `only` names the programs, all if empty."""
    print("A trivial tool. Pointsman with rights, validation and audit; floors: the front alone (echo), with plain")
    print(f"forwarding (forward); called without a gateway (direct). Medians of {rounds} rounds, programs in turn.\n")
    ratios: list[str] = []
    async with http_servers(1, 0) as downstream, programs(downstream) as found:
        row(HEAD)
        row("-" * len(name) for name in HEAD)
        for server in servers:
            for era in eras:
                for count in connections:
                    specs = _specs(server, era, count, seconds, downstream, found, only)
                    figures = await interleaved(specs, rounds)
                    for name, one in figures.items():
                        row((server, era, count, name, *_cells(one)))
                    ratios += _ratios(f"{server:6} | {era:6} | {count:5}", figures)
    names = [f"{what} / {name}" for name in (FLOOR, LAZY) for what in RATIOS]
    print("\nPointsman / other\n")
    row(("server", "client", "conns", *names))
    row("-" * len(name) for name in ("server", "client", "conns", *names))
    print("\n".join(ratios), flush=True)


async def interleaved(specs: Mapping[str, tuple[Spec, int | None]], rounds: int) -> dict[str, Figures]:
    """Run the loads in turn, `rounds` times."""
    runs: dict[str, list[tuple[Report, float]]] = {name: [] for name in specs}
    for _ in range(rounds):
        for name, (spec, pid) in specs.items():
            runs[name].append(await measure(spec, pid))
    return {name: _figures(one) for name, one in runs.items()}


def row(cells: Iterable[object]) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def _specs(
    server: str,
    era: Era,
    count: int,
    seconds: float,
    downstream: HttpServers,
    found: dict[str, Program],
    only: Sequence[str],
) -> dict[str, tuple[Spec, int | None]]:
    kind: Literal["http", "stdio"] = "http" if server == "http" else "stdio"
    target = downstream.urls[0] if server == "http" else "bench.servers.stdio"
    pid = downstream.pid if server == "http" else None
    specs: dict[str, tuple[Spec, int | None]] = {
        DIRECT: (Spec(kind, target, era, "echo", [HELLO], "hello", count, seconds), pid)
    }
    key = "http0" if server == "http" else "stdio"
    for name in (ECHO_FLOOR, FLOOR, OURS, LAZY):
        if name in found and era in found[name].eras:
            specs[name] = (found[name].spec(key, era, count, seconds), found[name].pid)
    return {name: one for name, one in specs.items() if not only or name in only}


def _figures(runs: list[tuple[Report, float]]) -> Figures:
    def median(values: Iterable[float]) -> float:
        return statistics.median(values)

    reports = [report for report, _ in runs]
    return Figures(
        per_second=median(one.per_second for one in reports),
        cpu_ms=median(cpu for _, cpu in runs),
        p50_ms=median(one.p50_ms for one in reports),
        p95_ms=median(one.p95_ms for one in reports),
        p99_ms=median(one.p99_ms for one in reports),
        load_cpu_ms=median(one.cpu_ms for one in reports),
    )


def _cells(one: Figures) -> list[str]:
    times = (one.cpu_ms, one.p50_ms, one.p95_ms, one.p99_ms, one.load_cpu_ms)
    return [f"{one.per_second:,.0f}", *(f"{value:.3f}" for value in times)]


def _ratios(label: str, figures: dict[str, Figures]) -> list[str]:
    if OURS not in figures:
        return []
    ours, cells = figures[OURS], []
    for name in (FLOOR, LAZY):
        other = figures.get(name)
        if other is None:
            cells += ["-"] * len(RATIOS)
        else:
            cells += [
                f"{ours.per_second / other.per_second:.2f}",
                f"{ours.cpu_ms / other.cpu_ms:.2f}",
                f"{ours.p99_ms / other.p99_ms:.2f}",
            ]
    return ["| " + " | ".join([label, *cells]) + " |"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of 0.5 s: rough, in seconds")
    parser.add_argument("--seconds", type=float, help=f"of each load (default {SECONDS})")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    parser.add_argument("--server", choices=SERVERS, help="default: both")
    parser.add_argument("--era", choices=BOTH_ERAS, help="of the client; default: both")
    parser.add_argument("--connections", type=int, help="default: 1 and 32")
    names = (DIRECT, ECHO_FLOOR, FLOOR, OURS, LAZY)
    parser.add_argument("--only", nargs="+", choices=names, default=(), help="programs; default: all")
    options = parser.parse_args()
    run = calls(
        seconds=options.seconds or (0.5 if options.quick else SECONDS),
        rounds=options.rounds or (1 if options.quick else ROUNDS),
        servers=(options.server,) if options.server else SERVERS,
        eras=(options.era,) if options.era else BOTH_ERAS,
        connections=(options.connections,) if options.connections else CONNECTIONS,
        only=options.only,
    )
    asyncio.run(run)


if __name__ == "__main__":
    main()
