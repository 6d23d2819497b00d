"""What the test does with the server that the OpenAI Agents block sets up."""

import asyncio
import json

from report import report
from setup_block import pointsman


async def main():
    async with pointsman:
        tools = await pointsman.list_tools()
        discovery = await pointsman.call_tool("tool_discovery", {"query": ["what is the current time in Tokyo"]})
        found = json.loads(discovery.content[0].text)["results"][0]["toolKey"]
        arguments = {"toolKey": found, "arguments": {"timezone": "Asia/Tokyo"}}
        executed = await pointsman.call_tool("tool_execute", arguments)
    report([tool.name for tool in tools], found, executed.content[0].text)


asyncio.run(main())
