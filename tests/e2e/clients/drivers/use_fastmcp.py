"""What the test does with the client that the FastMCP block sets up."""

import asyncio

from report import report
from setup_block import client


async def main():
    async with client:
        tools = await client.list_tools()
        discovery = await client.call_tool("tool_discovery", {"query": ["what is the current time in Tokyo"]})
        found = discovery.structured_content["results"][0]["toolKey"]
        executed = await client.call_tool("tool_execute", {"toolKey": found, "arguments": {"timezone": "Asia/Tokyo"}})
    report([tool.name for tool in tools], found, executed.content[0].text)


asyncio.run(main())
