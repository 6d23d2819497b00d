"""A discovery over many tools, with cached lists and with lists fetched for every request."""

from __future__ import annotations

from bench.gateway import http_entries, measured_gateway, until_it_serves
from bench.load.report import Report, Spec
from bench.process import http_servers, measure
from bench.servers.answers import TTL_MS
from bench.servers.tools import QUERIES
from tests.gateway_process import GatewayProcess

SECONDS = 3.0
TOOLS = 18  # and the two that are called: 20 on each server


async def discovery() -> None:
    print("tool_discovery on one connection, in ms; CPU is the gateway's own")
    print(f"  {'servers':>7}{'tools':>7}  {'lists':10}{'ttlMs':>7}{'p50':>7}{'p95':>7}{'p99':>7}{'CPU ms':>8}")
    for ttl_ms in (TTL_MS, 0):
        await _discover(50, "known", {"list_max_age_s": 3600}, ttl_ms)
    await _discover(10, "afresh", {"list_max_age_s": 0})
    await _discover(50, "afresh", {"list_max_age_s": 0})


async def _discover(servers: int, lists: str, limits: dict[str, object], ttl_ms: int = TTL_MS) -> None:
    async with (
        http_servers(servers, TOOLS, ttl_ms) as downstream,
        measured_gateway(http_entries(downstream.urls), limits) as gateway,
    ):
        for number in range(servers):
            await until_it_serves(gateway, f"http{number}")
        report, cpu = await measure_discovery(gateway, SECONDS)
    tools = servers * (TOOLS + 2)
    print(f"  {servers:7}{tools:7,}  {lists:10}{ttl_ms:7}", end="")
    print(f"{report.p50_ms:7.2f}{report.p95_ms:7.2f}{report.p99_ms:7.2f}{cpu:8.2f}", flush=True)


async def measure_discovery(
    gateway: GatewayProcess, seconds: float, project: str | None = None
) -> tuple[Report, float]:
    """Ask all queries in turn on one connection; return the report and the gateway's CPU time in ms a call."""
    spec = Spec(
        kind="http",
        target=gateway.url,
        era="modern",
        tool="tool_discovery",
        arguments=[{"query": [query]} for query in QUERIES],
        expect='"toolKey"',
        connections=1,
        seconds=seconds,
        headers={**gateway.headers, **({"X-Pointsman-Project": project} if project else {})},
    )
    return await measure(spec, gateway.pid)
