"""FastMCP's client signs in at the gateway that the first argument names, and calls a tool."""

import asyncio
import sys

from fastmcp import Client


async def main():
    async with Client(sys.argv[1], auth="oauth") as client:
        executed = await client.call_tool(
            "tool_execute", {"toolKey": "time:get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}
        )
    print(executed.content[0].text)


asyncio.run(main())
