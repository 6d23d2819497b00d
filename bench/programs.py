"""The programs that are compared: ours, a floor, and lazy-mcp, a gateway of others with the same idea.

All stand before the same two servers: `http0` over HTTP, and `stdio`, a child of their own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.floor import TOKEN as FLOOR_TOKEN
from bench.gateway import HELLO, ROOT, http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.http import open_connection
from bench.load.report import Spec
from bench.load.requests import Era, call_body, http_call
from bench.process import HttpServers

LAZY_MCP = ROOT / ".foreign" / "lazy-mcp" / "bin" / "lazy-mcp"
LAZY_TOKEN = "bench"
LAZY_PROTOCOL = "2025-06-18"  # the newest that it accepts
START_S = 30.0
BOTH_ERAS: tuple[Era, ...] = ("legacy", "modern")
OURS, FLOOR, ECHO_FLOOR, LAZY = "pointsman", "forward", "echo", "lazy-mcp"


@dataclass(frozen=True)
class Program:
    """A gateway under load. `pid` is the process whose CPU time counts, with its children but the servers'."""

    name: str
    pid: int
    url: str
    headers: dict[str, str]
    eras: tuple[Era, ...] = BOTH_ERAS

    def spec(
        self,
        server: str,
        era: Era,
        connections: int,
        seconds: float,
        tool: str = "echo",
        arguments: Mapping[str, Any] = HELLO,
    ) -> Spec:
        name, wrapped = self.call_of(server, tool, arguments)
        expect = "hello" if tool == "echo" else "GET"
        return Spec("http", self.url, era, name, [wrapped], expect, connections, seconds, self.headers)

    def call_of(self, server: str, tool: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        if self.name == LAZY:
            return "invoke_command", {"server": server, "command_name": tool, "parameters": arguments}
        server = "self" if self.name == ECHO_FLOOR else server
        return "tool_execute", {"toolKey": f"{server}:{tool}", "arguments": arguments}


@asynccontextmanager
async def programs(downstream: HttpServers, **config: Any) -> AsyncIterator[dict[str, Program]]:
    """Those that can run here, by name; `config` is more of our configuration."""
    async with AsyncExitStack() as stack:
        servers = {**http_entries(downstream.urls), "stdio": stdio_entry()}
        gateway = await stack.enter_async_context(measured_gateway(servers, **config))
        for server in servers:
            await until_it_serves(gateway, server)
        pid, url = await stack.enter_async_context(_floor(downstream.urls[0]))
        floor_headers = {"authorization": FLOOR_TOKEN.decode()}
        found = {
            OURS: Program(OURS, gateway.pid, gateway.url, gateway.headers),
            FLOOR: Program(FLOOR, pid, url, floor_headers),
            ECHO_FLOOR: Program(ECHO_FLOOR, pid, url, floor_headers),
        }
        if LAZY_MCP.exists():
            found[LAZY] = await stack.enter_async_context(_lazy_mcp(downstream.urls))
        else:
            print("  lazy-mcp is left out: it is not installed (`make .foreign/lazy-mcp/.installed`)")
        yield found


@asynccontextmanager
async def _floor(server_url: str) -> AsyncIterator[tuple[int, str]]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.floor", server_url), stdin=pipe, stdout=pipe, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.pid, f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _lazy_mcp(urls: list[str]) -> AsyncIterator[Program]:
    """Without its log of every call, which it writes by default. It speaks no modern protocol."""
    entry = stdio_entry()
    http = [{"name": name, "description": name, "url": one["url"]} for name, one in http_entries(urls).items()]
    stdio = {"name": "stdio", "description": "stdio", "command": [entry["command"], *entry["args"]]}
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
        file = Path(folder) / "servers.json"
        file.write_text(json.dumps({"servers": [*http, stdio], "logging": {"level": "error"}}))
        process = await asyncio.create_subprocess_exec(
            *(str(LAZY_MCP), "--config", str(file), "--transport", "http"),
            *("--port", str(port), "--auth-token", LAZY_TOKEN),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        headers = {"authorization": f"Bearer {LAZY_TOKEN}", "mcp-protocol-version": LAZY_PROTOCOL}
        program = Program(LAZY, process.pid, f"http://127.0.0.1:{port}/mcp", headers, eras=("legacy",))
        try:
            for server in ("http0", "stdio"):
                await _until_it_serves(program, server)
            yield program
        finally:
            process.terminate()
            await process.wait()


async def _until_it_serves(program: Program, server: str) -> None:
    tool, arguments = program.call_of(server, "echo", HELLO)
    request = http_call(program.url, "legacy", tool, call_body("legacy", tool, arguments), program.headers, None)
    answer = b""
    async with asyncio.timeout(START_S):
        while b"hello" not in answer:
            await asyncio.sleep(0.05)
            try:
                connection = await open_connection(program.url)
            except ConnectionRefusedError:
                continue
            _, answer = await connection.exchange(request)
            connection.transport.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
