"""How long a start takes, and how much memory an idle gateway needs."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.gateway import call, http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.http import open_connection
from bench.load.requests import call_body, http_call, http_list
from bench.process import cpu_ms, http_servers, rss_mb, tree_cpu_ms, tree_mb
from tests.gateway_process import GatewayProcess

SERVERS = 10
STARTS = 5
PROCESSES = 200
FIRST_REQUESTS = ("tools/list", "tool_discovery")
QUIET_S, QUIET_CPU_MS = 2.0, 20.0  # nothing is left to prepare when all processes together use less than this

ARCHIVE = {"archive": {"bundled": "archive"}}


@dataclass(frozen=True, slots=True)
class Start:
    ready_s: float
    first_s: float
    first_cpu_ms: float
    rss_mb: float
    idle_mb: float
    used_rss_mb: float
    used_mb: float


async def start() -> None:
    async with http_servers(SERVERS, 18) as downstream:
        entries = http_entries(downstream.urls)
        answers = {name: [await _first_answer(entries, name) for _ in range(STARTS)] for name in FIRST_REQUESTS}
        alone = [await _one_start(entries) for _ in range(STARTS)]
        beside = [await _one_start(entries | ARCHIVE) for _ in range(STARTS)]
    print(f"Start with {SERVERS} HTTP servers, median of {STARTS}")
    print(f"  {_median(alone, 'ready_s'):.2f} s from the command to the ready line")
    for name, measured in answers.items():
        seconds, cpu = (statistics.median(figures) for figures in zip(*measured, strict=True))
        print(f"  {seconds:.2f} s to the answer of a client whose first request is {name}, {cpu:.0f} ms of CPU")
    print(f"  {_median(alone, 'first_s'):.2f} s from the command to the answer of the first call")
    print(f"  {_median(alone, 'first_cpu_ms'):.0f} ms of CPU in the daemon until then")
    print(
        f"  {_median(alone, 'rss_mb'):.0f} MB RSS when idle, {_median(alone, 'used_rss_mb'):.0f} MB after a discovery"
    )
    for words, runs in (("without the archive", alone), ("with the archive", beside)):
        print(
            f"  {_median(runs, 'idle_mb'):.0f} MB Pss of all processes {words}, "
            f"{_median(runs, 'used_mb'):.0f} MB after a discovery"
        )
    print(f"  {await _start_of_many():.2f} s to the ready line with {PROCESSES} servers that are processes")


async def _first_answer(entries: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Seconds from the command to the answer of the first request, and CPU ms of the daemon until then."""
    began = time.perf_counter()
    async with measured_gateway(entries, wait=False) as gateway:
        connection = await open_connection(gateway.url)
        _, answer = await connection.exchange(_first_request(gateway, name))
        seconds, cpu = time.perf_counter() - began, cpu_ms(gateway.pid)
        assert b'"result"' in answer, answer
        connection.transport.close()
        return seconds, cpu


def _first_request(gateway: GatewayProcess, name: str) -> bytes:
    if name == "tools/list":
        return http_list(gateway.url, gateway.headers)
    body = call_body("modern", name, {"query": ["send an invoice"]})
    return http_call(gateway.url, "modern", name, body, gateway.headers, None)


def _median(runs: list[Start], field: str) -> float:
    return float(statistics.median(getattr(run, field) for run in runs))


async def _one_start(entries: Mapping[str, Any]) -> Start:
    began = time.perf_counter()
    async with measured_gateway(entries, wait=False) as gateway:
        ready = time.perf_counter() - began
        await until_it_serves(gateway, "http0")
        first, first_cpu = time.perf_counter() - began, cpu_ms(gateway.pid)
        for number in range(SERVERS):
            await until_it_serves(gateway, f"http{number}")
        await _until_quiet(gateway.pid)
        idle = rss_mb(gateway.pid), tree_mb(gateway.pid)
        await call(gateway, "tool_discovery", {"query": ["send an invoice"]})
        return Start(ready, first, first_cpu, *idle, rss_mb(gateway.pid), tree_mb(gateway.pid))


async def _until_quiet(pid: int) -> None:
    """Wait for what goes on after a start: the archive embeds its first pages."""
    async with asyncio.timeout(60):
        before = tree_cpu_ms(pid)
        while True:
            await asyncio.sleep(QUIET_S)
            now = tree_cpu_ms(pid)
            if now - before < QUIET_CPU_MS:
                return
            before = now


async def _start_of_many() -> float:
    servers = {f"stdio{number}": stdio_entry() for number in range(PROCESSES)}
    began = time.perf_counter()
    async with measured_gateway(servers, wait=False):
        return time.perf_counter() - began
