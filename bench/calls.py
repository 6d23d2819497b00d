"""A trivial tool, called directly and through the gateway."""

from __future__ import annotations

from bench.gateway import HELLO, http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load import Report, Spec
from bench.process import http_servers, measure
from bench.wire import Era
from tests.gateway_process import GatewayProcess

SECONDS = 2.5
ERAS: tuple[Era, ...] = ("legacy", "modern")
CONNECTIONS = (1, 32)


async def calls() -> None:
    print("A trivial tool, in ms: directly, through the gateway, and how many times longer; CPU is the gateway's own")
    print(f"  {'server':7}{'front':8}{'conns':>5}{'direct p50/p95/p99':>22}{'gateway p50/p95/p99':>22}", end="")
    print(f"{'p50 ratio':>11}{'calls/s':>9}{'CPU ms/call':>13}")
    async with http_servers(1, 0) as urls:
        servers = {**http_entries(urls), "stdio": stdio_entry()}
        async with measured_gateway(servers) as gateway:
            for server in servers:
                await until_it_serves(gateway, server)
            for connections in CONNECTIONS:
                for era in ERAS:
                    direct = Spec("http", urls[0], era, "echo", [HELLO], "hello", connections, SECONDS)
                    await _compare("http", direct, "http0:echo", gateway)
                    direct = Spec("stdio", "bench.stdio_server", era, "echo", [HELLO], "hello", connections, SECONDS)
                    await _compare("stdio", direct, "stdio:echo", gateway)


async def _compare(server: str, direct: Spec, tool_key: str, gateway: GatewayProcess) -> None:
    through = Spec(
        kind="http",
        target=gateway.url,
        era=direct.era,
        tool="tool_execute",
        arguments=[{"toolKey": tool_key, "arguments": HELLO}],
        expect="hello",
        connections=direct.connections,
        seconds=direct.seconds,
        headers=gateway.headers,
    )
    alone, _ = await measure(direct)
    report, cpu = await measure(through, gateway.pid)
    print(f"  {server:7}{direct.era:8}{direct.connections:5}{_times(alone):>22}{_times(report):>22}", end="")
    print(f"{report.p50_ms / alone.p50_ms:11.1f}{report.per_second:9,.0f}{cpu:13.3f}", flush=True)


def _times(report: Report) -> str:
    return f"{report.p50_ms:.2f}/{report.p95_ms:.2f}/{report.p99_ms:.2f}"
