"""A gateway to measure: the real command, with rights, validation and audit switched on."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.load.http import open_connection
from bench.load.requests import call_body, http_call
from tests.gateway_process import GatewayProcess, gateway_process

ROOT = Path(__file__).parents[1]
USUAL = {"PYTHONDONTWRITEBYTECODE": ""}  # an installed gateway does not compile itself at each start
HELLO: dict[str, object] = {"text": "hello"}


def http_entries(urls: Sequence[str]) -> dict[str, Any]:
    return {f"http{number}": {"url": url} for number, url in enumerate(urls)}


def stdio_entry() -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "bench.servers.stdio"], "cwd": str(ROOT)}


@asynccontextmanager
async def measured_gateway(
    servers: Mapping[str, Any],
    limits: Mapping[str, Any] | None = None,
    *,
    prefix: Sequence[str] = (),
    env: Mapping[str, str] = USUAL,
    wait: bool = True,
    **more: Any,
) -> AsyncIterator[GatewayProcess]:
    """`wait`: until each server runs or has failed, not only for the ready line."""
    config = {"servers": servers, "limits": limits or {}, **more}
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
        without = () if wait else servers.keys()
        async with gateway_process(Path(folder), config, prefix=prefix, env=env, without=without) as gateway:
            yield gateway


async def call(gateway: GatewayProcess, tool: str, arguments: Mapping[str, Any], **headers: str) -> bytes:
    """One modern request on a connection of its own; the answer's body."""
    connection = await open_connection(gateway.url)
    body = call_body("modern", tool, arguments)
    sent = {**gateway.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
    _, answer = await connection.exchange(http_call(gateway.url, "modern", tool, body, sent, None))
    connection.transport.close()
    return answer


async def until_it_serves(gateway: GatewayProcess, server: str) -> None:
    hello = {"toolKey": f"{server}:echo", "arguments": HELLO}
    async with asyncio.timeout(30):
        while b'"hello"' not in await call(gateway, "tool_execute", hello):
            await asyncio.sleep(0.01)
