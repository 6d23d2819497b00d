"""A discovery while the breaker of the search service is open, compared with one that uses the local search."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Collection
from contextlib import suppress

import msgspec

from bench.discovery import measure_discovery
from bench.gateway import call, http_entries, measured_gateway
from bench.load.report import Report
from bench.process import http_servers
from bench.search import tools
from bench.servers.tools import QUERIES
from pointsman.config.model import CloudSearch
from pointsman.providers.base import SearchRequest, SearchUnavailableError
from pointsman.providers.cloud.provider import CloudSearchProvider
from tests.gateway_process import GatewayProcess

SECONDS = 1.0
ROUNDS = 6
ASKED = 5_000
SERVERS = 50
TOOLS = 18  # and the two that are called: 20 on each server
PLAIN, CLOUD = "plain", "cloud"
OPEN_NOTICE = "The local search answered, because the search service failed a moment ago and is not called for now."


async def fallback() -> None:
    """Alternate between the two, so that other load on the machine affects both alike."""
    logging.getLogger("pointsman").addHandler(logging.NullHandler())  # the failures are expected
    print("tool_discovery over 1,000 tools, `bm25` and `cloud` with the breaker open, in ms")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen: connections are refused
        dead = {"url": f"http://127.0.0.1:{unused.getsockname()[1]}", "token": "bench", "timeout_s": 5}
        async with http_servers(SERVERS, TOOLS) as downstream:
            entries = http_entries(downstream.urls)
            shared = {server_id: {**entry, "projects": [PLAIN, CLOUD]} for server_id, entry in entries.items()}
            projects = {PLAIN: {"optimization": "bm25"}, CLOUD: {"optimization": "cloud"}}
            limits = {"list_max_age_s": 3600}
            async with measured_gateway(shared, limits, projects=projects, cloud_search=dead) as gateway:
                await _until_open(gateway, shared)
                plain: list[tuple[Report, float]] = []
                through_cloud: list[tuple[Report, float]] = []
                for number in range(ROUNDS):
                    for mine in (plain, through_cloud) if number % 2 else (through_cloud, plain):
                        mine.append(await measure_discovery(gateway, SECONDS, PLAIN if mine is plain else CLOUD))
        _print(_best(plain), _best(through_cloud))
        print(f"  in process, the open breaker costs {await _refusal_us(dead):.1f} µs", flush=True)


async def _until_open(gateway: GatewayProcess, servers: Collection[str]) -> None:
    """Wait until all servers run, their lists are cached and the breaker is open."""
    async with asyncio.timeout(60):
        while True:
            answer = await call(gateway, "tool_discovery", {"query": QUERIES[:1]}, X_Pointsman_Project=CLOUD)
            notice = str(msgspec.json.decode(answer)["result"]["structuredContent"].get("notice"))
            if notice.endswith(OPEN_NOTICE) and not any(server in notice for server in servers):
                return
            await asyncio.sleep(0.05)


async def _refusal_us(dead: dict[str, object]) -> float:
    """Measure what the provider itself adds to a local search."""
    cloud = CloudSearchProvider(CloudSearch.model_validate(dead), clock=lambda: 0.0)  # the breaker never closes
    request = SearchRequest(("anything",), None, tools(1_000), 5)

    async def ask() -> None:
        with suppress(SearchUnavailableError):
            await cloud.search(request)

    while cloud.state_for(None)[0] != "open":
        await ask()
    began = time.perf_counter()
    for _ in range(ASKED):
        await ask()
    took_us = (time.perf_counter() - began) * 1e6 / ASKED
    await cloud.close()
    return took_us


def _best(rounds: list[tuple[Report, float]]) -> tuple[Report, float]:
    """Take the fastest: other load on the machine only adds."""
    return min(rounds, key=lambda measured: measured[0].p50_ms)


def _print(plain: tuple[Report, float], through_cloud: tuple[Report, float]) -> None:
    print(f"  {'':8}{'p50':>7}{'p95':>7}{'CPU ms':>8}")
    for name, (report, cpu) in (("bm25", plain), ("cloud", through_cloud)):
        print(f"  {name:8}{report.p50_ms:7.2f}{report.p95_ms:7.2f}{cpu:8.2f}")
    ours, theirs = through_cloud[0].p50_ms, plain[0].p50_ms
    print(f"  {ours - theirs:+.3f} ms at p50, {ours / theirs:.3f} times")
