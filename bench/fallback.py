"""A discovery whose search service is down and left alone, beside one that is meant for the local search."""

from __future__ import annotations

import asyncio
import socket

from bench.gateway import call, http_entries, measured_gateway
from bench.load import Report, Spec
from bench.process import http_servers, measure
from bench.tools import QUERIES
from tests.gateway_process import GatewayProcess

SECONDS = 2.0
ROUNDS = 3
SERVERS = 50
TOOLS = 19  # and the one that echoes: 20 on each server
PLAIN, CLOUDY = "plain", "cloudy"


async def fallback() -> None:
    """In turns, so that what else the machine does falls on both."""
    print("tool_discovery over 1,000 tools, `bm25` and `cloud` with the breaker open, in ms")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen: connections are refused
        dead = {"url": f"http://127.0.0.1:{nobody.getsockname()[1]}", "token": "bench", "timeout_s": 5}
        async with http_servers(SERVERS, TOOLS) as downstream:
            entries = http_entries(downstream.urls)
            shared = {server_id: {**entry, "projects": [PLAIN, CLOUDY]} for server_id, entry in entries.items()}
            projects = {PLAIN: {"optimization": "bm25"}, CLOUDY: {"optimization": "cloud"}}
            limits = {"list_max_age_s": 3600}
            async with measured_gateway(shared, limits, projects=projects, cloud_search=dead) as gateway:
                await _until_open(gateway)
                rounds = [[await _discover(gateway, project) for project in (PLAIN, CLOUDY)] for _ in range(ROUNDS)]
    _print(rounds)


async def _until_open(gateway: GatewayProcess) -> None:
    """All servers are there, their lists are known, and the service is left alone."""
    async with asyncio.timeout(60):
        while True:
            answer = await call(gateway, "tool_discovery", {"query": QUERIES[:1]}, X_Pointsman_Project=CLOUDY)
            if b"left alone" in answer and b"without" not in answer:
                return
            await asyncio.sleep(0.05)


async def _discover(gateway: GatewayProcess, project: str) -> tuple[Report, float]:
    spec = Spec(
        kind="http",
        target=gateway.url,
        era="modern",
        tool="tool_discovery",
        arguments=[{"query": [query]} for query in QUERIES],
        expect='"toolKey"',
        connections=1,
        seconds=SECONDS,
        headers={**gateway.headers, "X-Pointsman-Project": project},
    )
    return await measure(spec, gateway.pid)


def _print(rounds: list[list[tuple[Report, float]]]) -> None:
    """The best of the rounds: what else runs on the machine only ever adds."""
    plain, cloudy = (min(column, key=lambda measured: measured[0].p50_ms) for column in zip(*rounds, strict=True))
    print(f"  {'':8}{'p50':>7}{'p95':>7}{'CPU ms':>8}")
    for name, (report, cpu) in (("bm25", plain), ("cloud", cloudy)):
        print(f"  {name:8}{report.p50_ms:7.2f}{report.p95_ms:7.2f}{cpu:8.2f}")
    ours, theirs = cloudy[0].p50_ms, plain[0].p50_ms
    print(f"  {ours - theirs:+.3f} ms at p50, {ours / theirs:.3f} times", flush=True)
