"""What the test does with the client that the LangChain block sets up."""

import asyncio
import json

from report import report
from setup_block import client


async def main():
    tools = {tool.name: tool for tool in await client.get_tools()}
    discovery = await tools["tool_discovery"].ainvoke({"query": ["what is the current time in Tokyo"]})
    found = json.loads(discovery[0]["text"])["results"][0]["toolKey"]
    executed = await tools["tool_execute"].ainvoke({"toolKey": found, "arguments": {"timezone": "Asia/Tokyo"}})
    report(list(tools), found, executed[0]["text"])


asyncio.run(main())
