"""A client of the search service, and a few tools to search in."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.search_api_process import SearchApiProcess, search_api_process

Json = dict[str, Any]
LONG_S = 60.0  # against hanging


def tool(key: str, description: str = "", **parameters: str) -> Json:
    server, _, name = key.partition(":")
    properties = {parameter: {"type": "string", "description": text} for parameter, text in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return {
        "toolKey": key,
        "toolName": name,
        "serverName": server,
        "description": description,
        "inputSchema": schema,
    }


TOOLS = [
    tool("sky:get_forecast", "Tells the weather of the coming days.", city="Where"),
    tool("sky:get_tides", "When the sea is high and low.", harbour="Which harbour"),
    tool("post:send_mail", "Sends a letter by electronic mail.", recipient="Who gets it"),
    tool("post:read_mail", "Reads the newest letters."),
    tool("bank:transfer_money", "Moves an amount to another account.", amount="How much"),
]


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class Client:
    service: SearchApiProcess
    http: httpx2.AsyncClient

    async def search(self, *queries: str, tools: list[Json] | None = None, **fields: Any) -> Json:
        """The answer to a good request."""
        response = await self.post({"query": list(queries), "tools": TOOLS if tools is None else tools, **fields})
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        return answer

    async def post(
        self, body: Json | bytes | list[Any], headers: dict[str, str] | None = None, token: str | None = None
    ) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {token or self.service.token}", "Content-Type": "application/json"}
        return await self.http.post("/catalog/search", content=content, headers=sent | (headers or {}))

    async def get(self, path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
        return await self.http.get(path, headers=headers or {})

    async def figure(self, name: str) -> float:
        """Of /metrics; all its labels together, where `name` names none."""
        text = (await self.get("/metrics")).text
        lines = re.findall(rf"^pointsman_search_api_{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, lines))

    async def until(self, name: str, fits: Callable[[float], bool]) -> None:
        async with asyncio.timeout(LONG_S):
            while not fits(await self.figure(name)):
                await asyncio.sleep(0.01)


def error_of(response: httpx2.Response) -> tuple[int, str]:
    """Status and code, after a look at what every refusal must have."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["message"].endswith(".")
    assert response.headers["x-request-id"]
    return response.status_code, body["error"]["code"]


@asynccontextmanager
async def open_service(folder: Path, config: Json | None = None, **search_api: Any) -> AsyncIterator[Client]:
    whole = {**(config or {}), "search_api": search_api}
    async with (
        search_api_process(folder, whole) as service,
        httpx2.AsyncClient(base_url=service.url, timeout=LONG_S) as http,
    ):
        yield Client(service, http)
