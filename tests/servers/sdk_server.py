"""A server as most people write one: on the mcp SDK, over stdio, in both eras."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("sdk-server")


class Name(BaseModel):
    name: str


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"Hello {answer.data.name}" if answer.action == "accept" else "Hello nobody"


@server.tool()
async def count(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 3)
    return "done"


if __name__ == "__main__":
    server.run("stdio")
