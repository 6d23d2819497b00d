"""How long a start takes, and how much memory an idle gateway needs."""

from __future__ import annotations

import statistics
import time

from bench.gateway import call, http_entries, measured_gateway, until_it_serves
from bench.process import http_servers, rss_mb

SERVERS = 10
STARTS = 5


async def start() -> None:
    async with http_servers(SERVERS, 18) as downstream:
        ready, first, idle, used = zip(*[await _one_start(downstream.urls) for _ in range(STARTS)], strict=True)
    print(f"Start with {SERVERS} HTTP servers, median of {STARTS}")
    print(f"  {statistics.median(ready):.2f} s from the command to the ready line")
    print(f"  {statistics.median(first):.2f} s from the command to the answer of the first call")
    print(f"  {statistics.median(idle):.0f} MB RSS when idle, {statistics.median(used):.0f} MB after a discovery")


async def _one_start(urls: list[str]) -> tuple[float, float, float, float]:
    began = time.perf_counter()
    async with measured_gateway(http_entries(urls)) as gateway:
        ready = time.perf_counter() - began
        await until_it_serves(gateway, "http0")
        first = time.perf_counter() - began
        for number in range(SERVERS):
            await until_it_serves(gateway, f"http{number}")
        idle = rss_mb(gateway.pid)
        await call(gateway, "tool_discovery", {"query": ["send an invoice"]})
        return ready, first, idle, rss_mb(gateway.pid)
