"""The first discovery over 10,000 tools, before and after a restart, and the calls that go on meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.gateway import HELLO, USUAL, call, http_entries, until_it_serves
from bench.load.http import open_connection
from bench.load.requests import call_body, http_call, http_list
from bench.process import anonymous_mb, cpu_ms, http_servers, rss_mb
from bench.servers.tools import QUERIES
from tests.gateway_process import GatewayProcess, gateway_process

SERVERS = 10
TOOLS = 999  # and the one that echoes: 1,000 on each server
QUIET_S = 1.5  # for what the gateway does after its start
CONNECTED = "connected"  # the first start again, with a client that has listed the tools before, as all real ones do
BYSTANDER = "bystander"
EVERY_S = 0.01  # a call; more would cost more CPU than the discovery


async def first_discovery() -> None:
    print(f"The first tool_discovery over {SERVERS * (TOOLS + 1):,} tools, and a bystander's calls meanwhile, in ms")
    names = ("wall", "CPU", "second", "p50", "p99", "most", "RSS MB", "after", "anon MB", "after")
    print(f"  {'start':10}" + "".join(f"{name:>8}" for name in names))
    async with http_servers(SERVERS, TOOLS) as many, http_servers(1, 0) as one:
        config = {"servers": {**http_entries(many.urls), BYSTANDER: {"url": one.urls[0]}}}
        for starts in (("first", "restarted"), (CONNECTED,)):
            with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
                for start in starts:
                    async with gateway_process(Path(folder), config, env=USUAL) as gateway:
                        await until_it_serves(gateway, BYSTANDER)
                        if start == CONNECTED:
                            await _list_tools(gateway)
                        await asyncio.sleep(QUIET_S)
                        await _measure(gateway, start)


async def _list_tools(gateway: GatewayProcess) -> None:
    connection = await open_connection(gateway.url)
    await connection.exchange(http_list(gateway.url, gateway.headers))
    connection.transport.close()


async def _measure(gateway: GatewayProcess, start: str) -> None:
    before_mb, before_anon = rss_mb(gateway.pid), anonymous_mb(gateway.pid)
    done = asyncio.Event()
    bystander = asyncio.create_task(_calls_until(done, gateway))
    await asyncio.sleep(0.1)
    before, began = cpu_ms(gateway.pid), time.perf_counter()
    answer = await call(gateway, "tool_discovery", {"query": [QUERIES[0]]})
    wall, cpu = (time.perf_counter() - began) * 1000, cpu_ms(gateway.pid) - before
    assert b'"toolKey"' in answer, answer
    done.set()
    times = sorted(await bystander)
    again = time.perf_counter()
    await call(gateway, "tool_discovery", {"query": [QUERIES[1]]})
    second = (time.perf_counter() - again) * 1000
    await asyncio.sleep(QUIET_S)
    figures = (wall, cpu, second, times[len(times) // 2], times[int(len(times) * 0.99)], times[-1])
    memory = (before_mb, rss_mb(gateway.pid), before_anon, anonymous_mb(gateway.pid))
    print(f"  {start:10}" + "".join(f"{figure:8.1f}" for figure in (*figures, *memory)), flush=True)


async def _calls_until(done: asyncio.Event, gateway: GatewayProcess) -> list[float]:
    """Call one tool after another on one connection; how long each took, in ms."""
    connection = await open_connection(gateway.url)
    body = call_body("modern", "tool_execute", {"toolKey": f"{BYSTANDER}:echo", "arguments": HELLO})
    request = http_call(gateway.url, "modern", "tool_execute", body, gateway.headers, None)
    times = []
    while not done.is_set():
        began = time.perf_counter()
        await connection.exchange(request)
        times.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(EVERY_S)
    connection.transport.close()
    return times
