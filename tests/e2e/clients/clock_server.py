"""A server on stdin and stdout for the clients to find and call; it speaks both eras."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("clock")


@server.tool()
def get_current_time(timezone: str) -> str:
    """Get the current time in a timezone"""
    return f"It is 21:00 in {timezone}"


@server.tool()
def convert_time(time: str, timezone: str) -> str:
    """Convert a time to another timezone"""
    return f"{time} is 21:00 in {timezone}"


if __name__ == "__main__":
    server.run("stdio")
