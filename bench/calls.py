"""A trivial tool, called directly and through the gateway."""

from __future__ import annotations

from bench.gateway import HELLO, http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.report import Report, Spec
from bench.load.requests import Era
from bench.process import http_servers, measure
from tests.gateway_process import GatewayProcess

SECONDS = 2.5
ERAS: tuple[Era, ...] = ("legacy", "modern")
CONNECTIONS = (1, 32)


async def calls() -> None:
    print("A trivial tool, in ms: directly, and through the gateway with rights, validation and audit")
    print(f"  {'server':7}{'front':8}{'conns':>5}{'direct p50/p95/p99':>22}{'gateway p50/p95/p99':>22}", end="")
    print(f"{'ratio':>7}{'calls/s':>9}{'gateway CPU':>13}{'server CPU':>12}")
    async with http_servers(1, 0) as downstream:
        servers = {**http_entries(downstream.urls), "stdio": stdio_entry()}
        async with measured_gateway(servers) as gateway:
            for server in servers:
                await until_it_serves(gateway, server)
            for connections in CONNECTIONS:
                for era in ERAS:
                    direct = Spec("http", downstream.urls[0], era, "echo", [HELLO], "hello", connections, SECONDS)
                    await _compare(direct, downstream.pid, "http0:echo", gateway)
                    direct = Spec("stdio", "bench.servers.stdio", era, "echo", [HELLO], "hello", connections, SECONDS)
                    await _compare(direct, None, "stdio:echo", gateway)
    print("  CPU: ms a call, of the gateway, and of the HTTP server when called directly (what the machine allows)")


async def _compare(direct: Spec, server_pid: int | None, tool_key: str, gateway: GatewayProcess) -> None:
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
    alone, server_cpu = await measure(direct, server_pid)
    report, cpu = await measure(through, gateway.pid)
    print(f"  {direct.kind:7}{direct.era:8}{direct.connections:5}{_times(alone):>22}{_times(report):>22}", end="")
    print(f"{report.p50_ms / alone.p50_ms:7.1f}{report.per_second:9,.0f}{cpu:13.3f}", end="")
    print(f"{server_cpu:12.3f}" if server_pid is not None else "", flush=True)


def _times(report: Report) -> str:
    return f"{report.p50_ms:.2f}/{report.p95_ms:.2f}/{report.p99_ms:.2f}"
