"""A server built on the mcp SDK, both eras on one path, as most servers in the world are built."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


class Who(BaseModel):
    name: str


def build() -> MCPServer:
    server = MCPServer("sdk", version="1")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def steps(ctx: Context) -> str:
        for step in (1, 2, 3):
            await ctx.report_progress(step, 3)
        return "done"

    @server.tool()
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Who)
        return f"hello {answer.data.name}" if answer.action == "accept" else "no name"

    return server


@asynccontextmanager
async def sdk_server() -> AsyncIterator[str]:
    """Yields the URL of a running one."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(build().streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.config.load()
    serving = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving
