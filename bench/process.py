"""Starts the processes of a measurement, and reads their CPU time and memory from /proc."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.load.report import Report, Spec
from bench.servers.answers import TTL_MS

PIPE = asyncio.subprocess.PIPE


def cpu_ms(pid: int) -> float:
    """CPU time of a process so far, all its threads, without its children."""
    tasks = Path(f"/proc/{pid}/task")
    try:  # nanoseconds, where the kernel keeps them
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e6
    except FileNotFoundError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def tree_cpu_ms(pid: int) -> float:
    """CPU time of a process and its descendants so far, without the servers that it started."""
    total = cpu_ms(pid)
    for child in _children(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if b"bench.servers" not in Path(f"/proc/{child}/cmdline").read_bytes():
                total += tree_cpu_ms(child)
    return total


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def rss_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS")


def tree_mb(pid: int) -> float:
    """Memory of a process and all its descendants (Pss: pages that several processes share count once)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return own + sum(map(tree_mb, _children(pid)))


def anonymous_mb(pid: int) -> float:
    """Resident memory without pages of files, which the system takes away and loads again as it likes."""
    return _status_mb(pid, "RssAnon")


def _status_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no {field}")


@dataclass(frozen=True)
class HttpServers:
    """Trivial servers, all in one process."""

    pid: int
    urls: list[str]


@asynccontextmanager
async def http_servers(count: int, tools: int, ttl_ms: int = TTL_MS) -> AsyncIterator[HttpServers]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.servers.http", str(count), str(tools), str(ttl_ms)), stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield HttpServers(process.pid, [f"http://127.0.0.1:{port}/{server}/mcp" for server in range(count)])
    finally:
        process.stdin.close()
        await process.wait()


async def measure(spec: Spec, pid: int | None = None) -> tuple[Report, float]:
    """Run a load; also the CPU milliseconds that process `pid` and its helpers spent on each call."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.load", stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    if await process.stdout.readline() != b"warm\n":
        raise SystemExit(f"the load could not be started: {spec}")
    before = tree_cpu_ms(pid) if pid is not None else 0.0
    process.stdin.write(b"\n")
    line = await process.stdout.readline()
    spent = (tree_cpu_ms(pid) if pid is not None else 0.0) - before
    await process.wait()
    report = msgspec.json.decode(line, type=Report)
    if report.bad or not report.calls:
        print(f"  ! {report.bad} of {report.calls} answers were bad, e.g. {report.sample}")
    return report, spent / max(1, report.calls)
