"""Whether memory is released after 10,000 calls and 1,000 sessions that were never closed."""

from __future__ import annotations

import asyncio
import time

from bench.gateway import HELLO, http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.http import HttpConnection, open_connection, open_session
from bench.load.requests import FIRST_ID, call_body, http_call, template
from bench.process import http_servers, rss_mb
from bench.servers.answers import decode
from tests.gateway_process import GatewayProcess

CALLS = 10_000
SESSIONS = 1_000
IDLE_S = 5.0  # the limit `session_idle_s`, ten minutes by default
ALLOWED_MB = 30.0
AT_ONCE = 16
WARM_UP_CALLS = 500


async def memory_comes_back() -> bool:
    print(f"Memory: {CALLS:,} calls, then {SESSIONS:,} abandoned sessions", flush=True)
    async with http_servers(1, 19) as downstream:
        servers = {**http_entries(downstream.urls), "stdio": stdio_entry()}
        async with measured_gateway(servers, {"session_idle_s": IDLE_S, "sessions": 2 * SESSIONS}) as gateway:
            for server in servers:
                await until_it_serves(gateway, server)
            await _make_calls(gateway, WARM_UP_CALLS)
            before = rss_mb(gateway.pid)
            print(f"{before:7.1f} MB before", flush=True)
            await _make_calls(gateway, CALLS)
            print(f"{rss_mb(gateway.pid):7.1f} MB after {CALLS:,} calls", flush=True)
            await _abandon_sessions(gateway, SESSIONS)
            print(f"{rss_mb(gateway.pid):7.1f} MB with {SESSIONS:,} abandoned sessions", flush=True)
            await asyncio.sleep(3 * IDLE_S)
            await until_it_serves(gateway, "http0")
            after = rss_mb(gateway.pid)
    grown = after - before
    verdict = "within" if grown <= ALLOWED_MB else "MORE than"
    print(f"{after:7.1f} MB once they timed out: {grown:+.1f} MB, {verdict} the {ALLOWED_MB:.0f} MB allowed")
    return grown <= ALLOWED_MB


async def _make_calls(gateway: GatewayProcess, calls: int) -> None:
    """In turn to both servers, each worker in a legacy session of its own."""
    began = time.perf_counter()
    await asyncio.gather(*(_worker(gateway, calls // AT_ONCE) for _ in range(AT_ONCE)))
    print(f"        {calls:,} calls in {time.perf_counter() - began:.1f} s", flush=True)


async def _worker(gateway: GatewayProcess, calls: int) -> None:
    connection = await open_connection(gateway.url)
    session = await open_session(connection, gateway.url, gateway.headers)
    requests = [
        template(http_call(gateway.url, "legacy", "tool_execute", body, gateway.headers, session))
        for body in (
            call_body("legacy", "tool_execute", {"toolKey": f"{server}:echo", "arguments": HELLO})
            for server in ("http0", "stdio")
        )
    ]
    for number in range(calls):
        _, body = await connection.exchange(requests[number % 2].numbered(FIRST_ID + number))
        result = decode(body).get("result") or {}
        if not result.get("content") or result.get("isError"):
            raise SystemExit(f"a bad answer: {body[:500].decode(errors='replace')}")
    connection.transport.close()


async def _abandon_sessions(gateway: GatewayProcess, sessions: int) -> None:
    """Open sessions and abandon them, as a crashed client does."""
    connections: list[HttpConnection] = []
    for _ in range(sessions):
        connection = await open_connection(gateway.url)
        await open_session(connection, gateway.url, gateway.headers)
        connections.append(connection)
        if len(connections) == AT_ONCE:
            for each in connections:
                each.transport.abort()
            connections.clear()
