"""The SDK's own client, pointed at a gateway: what a person's assistant does, in either era."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from tests.gateway_process import GatewayProcess

Mode = Literal["legacy", "auto"]
BOTH_ERAS: tuple[Mode, ...] = ("legacy", "auto")
SESSION_S = 60.0  # a bound against hanging


@dataclass(frozen=True)
class Assistant:
    """A client that knows the two tools."""

    client: Client

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def discover(self, *query: str, max_results: int = 10) -> dict[str, Any]:
        answer = await self.client.call_tool("tool_discovery", {"query": list(query), "maxResults": max_results})
        assert not answer.is_error, answer
        content: dict[str, Any] = answer.structured_content or {}
        return content

    async def found(self, *query: str, max_results: int = 10) -> list[str]:
        """The tool keys that a discovery names, best first."""
        return [hit["toolKey"] for hit in (await self.discover(*query, max_results=max_results))["results"]]

    async def execute(self, tool_key: str, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool("tool_execute", {"toolKey": tool_key, "arguments": arguments})

    async def text(self, tool_key: str, **arguments: Any) -> str:
        """The text of a call that must succeed."""
        answer = await self.execute(tool_key, **arguments)
        assert not answer.is_error, answer
        return "\n".join(block.text for block in answer.content if block.type == "text")

    async def refusal(self, tool_key: str, **arguments: Any) -> str:
        """The error code of a call that must fail."""
        answer = await self.execute(tool_key, **arguments)
        assert answer.is_error, answer
        code: str = (answer.structured_content or {})["error"]["code"]
        return code

    async def text_when_back(self, tool_key: str, **arguments: Any) -> str:
        """Call until the server is back; every other failure than its absence is a failure of the test."""
        while True:
            answer = await self.execute(tool_key, **arguments)
            if not answer.is_error:
                return "\n".join(block.text for block in answer.content if block.type == "text")
            error = (answer.structured_content or {}).get("error") or {}
            assert error.get("code") == "server_unavailable", json.dumps(error)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def assistant(
    gateway: GatewayProcess, mode: Mode = "auto", *, token: str | None = None, project: str | None = None
) -> AsyncIterator[Assistant]:
    """Connect, and wait until every server of this caller runs."""
    headers = {"Authorization": f"Bearer {token or gateway.token}"}
    if project is not None:
        headers["X-Pointsman-Project"] = project
    async with (
        asyncio.timeout(SESSION_S),
        httpx2.AsyncClient(headers=headers, timeout=SESSION_S) as http,
        Client(streamable_http_client(gateway.url, http_client=http), mode=mode) as client,
    ):
        await until_all_run(http, gateway)
        yield Assistant(client)


async def until_all_run(http: httpx2.AsyncClient, gateway: GatewayProcess) -> None:
    """Real servers may take longer to start than the gateway waits for them."""
    while True:
        servers: dict[str, dict[str, str]] = (await http.get(f"{gateway.base_url}/health")).json()["servers"]
        if all(server["state"] == "running" for server in servers.values()):
            return
        await asyncio.sleep(0.1)
