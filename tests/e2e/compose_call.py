"""`compose_call.py URL < LOG`: take the first token from a gateway's log and use its two tools, in both eras."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

SECRET = re.compile(r"\bptm_[\w-]{43}")
ERAS: tuple[Literal["legacy", "auto"], ...] = ("legacy", "auto")
TOOL = "archive:search_index"


async def call(url: str, secret: str, mode: Literal["legacy", "auto"]) -> str:
    async with (
        asyncio.timeout(60),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        while TOOL not in (keys := await found(client)):
            print(f"the archive is not there yet: {keys}")
            await asyncio.sleep(0.5)
        answer = await client.call_tool("tool_execute", {"toolKey": TOOL, "arguments": {"query": "anything"}})
        if answer.is_error:
            raise SystemExit(f"tool_execute failed: {answer.content}")
        return f"{client.protocol_version}: {answer.structured_content}"


async def found(client: Client) -> list[str]:
    answer = await client.call_tool("tool_discovery", {"query": ["search an index of documents"]})
    return [hit["toolKey"] for hit in (answer.structured_content or {}).get("results", [])]


async def main() -> None:
    printed = set(SECRET.findall(sys.stdin.read()))
    if len(printed) != 1:
        raise SystemExit(f"the log holds {len(printed)} tokens instead of one")
    for mode in ERAS:
        print(await call(sys.argv[1], printed.copy().pop(), mode))


if __name__ == "__main__":
    asyncio.run(main())
