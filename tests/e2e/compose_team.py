"""`compose_team.py URL execute|discovery`: call three gateways behind a proxy until stdin ends, and count the calls.

The first line of stdin is a token. Prints `ready`, and at the end the number of answered calls by kind, as JSON. The
exit code is 1 if any call failed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Era = Literal["legacy", "auto"]

ERAS: tuple[Era, ...] = ("legacy", "auto") * 3  # one client each
TOOL = "archive:search_index"
QUERY = "search an index of documents"
IN_A_ROW = 9  # discoveries that find the tool: round robin, so all gateways have started it
CALL_S = 30.0
START_S = 60.0
PAUSE_S = 0.05
MOST_SHOWN = 10
GATEWAYS = 3
JSON = {"Accept": "application/json, text/event-stream"}
WHO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "team", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": WHO}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


class Team:
    """The clients, and what they counted."""

    def __init__(self, url: str, secret: str) -> None:
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []
        self._url = url
        self._headers = {"Authorization": f"Bearer {secret}"}

    async def wait_for_all(self) -> None:
        """Until all gateways know the token and one another, and have the tool."""
        in_a_row = 0
        async with asyncio.timeout(START_S), httpx2.AsyncClient(headers=self._headers, timeout=CALL_S) as http:
            while in_a_row < IN_A_ROW:
                complete = await self._reaches_all(http)
                in_a_row = in_a_row + 1 if complete and await self._is_found() else 0
                await asyncio.sleep(PAUSE_S)

    async def _reaches_all(self, http: httpx2.AsyncClient) -> bool:
        """Whether the proxy sends requests to each gateway, and each knows the token and the others."""
        asked = [await http.get(self._url.removesuffix("/mcp") + "/health") for _ in range(GATEWAYS)]
        # A gateway that does not know the token yet says nothing about replicas.
        reports = [answer.json().get("replicas", {}) for answer in asked]
        known = all(report.get("living") == GATEWAYS for report in reports)
        return known and len({report["this"] for report in reports}) == GATEWAYS

    async def end_a_session(self) -> None:
        """A session that one gateway has opened and another one ends is unknown to all of them at once."""
        async with httpx2.AsyncClient(headers=self._headers | JSON, timeout=CALL_S) as http:
            opened = await http.post(self._url, json=INITIALIZE)
            http.headers["Mcp-Session-Id"] = opened.headers["Mcp-Session-Id"]
            known = [(await http.post(self._url, json=PING)).status_code for _ in range(GATEWAYS)]
            await http.delete(self._url)
            ended = [(await http.post(self._url, json=PING)).status_code for _ in range(GATEWAYS)]
        if known != [200] * GATEWAYS or ended != [404] * GATEWAYS:
            raise SystemExit(f"a session was answered with {known}, and after its end with {ended}")

    async def call(self, kind: str, mode: Era, ended: asyncio.Event) -> None:
        async with self._client(mode) as client:
            while not ended.is_set():
                try:
                    async with asyncio.timeout(CALL_S):
                        await self._call_once(client, kind)
                except Exception as error:  # whatever a client sees instead of an answer is a lost call
                    self.failures.append(f"{kind} ({mode}): {error!r}")
                await asyncio.sleep(PAUSE_S)

    async def _call_once(self, client: Client, kind: str) -> None:
        arguments = {"toolKey": TOOL, "arguments": {"query": "anything"}} if kind == "execute" else {"query": [QUERY]}
        answer = await client.call_tool(f"tool_{kind}", arguments)
        if answer.is_error:
            raise ToolError(str(answer.content))
        self.answered[kind] += 1
        if kind == "execute" and '"total_matches": 1' not in json.dumps(answer.structured_content):
            raise ToolError(f"the document is not in the archive of this gateway: {answer.structured_content}")

    async def add_document(self) -> None:
        """Through one gateway: all of them have to find it."""
        async with self._client("auto") as client:
            document = {"doc_id": "one", "content": "anything"}
            arguments = {"toolKey": "archive:search_add_document", "arguments": document}
            if (answer := await client.call_tool("tool_execute", arguments)).is_error:
                raise SystemExit(f"no document could be added to the archive: {answer.content}")
        self.answered["execute"] += 1

    async def _is_found(self) -> bool:
        try:
            async with self._client("auto") as client:
                answer = await client.call_tool("tool_discovery", {"query": [QUERY]})
        except Exception:  # a gateway that does not know the token yet
            return False
        self.answered["discovery"] += 1
        return TOOL in [hit["toolKey"] for hit in (answer.structured_content or {}).get("results", [])]

    @asynccontextmanager
    async def _client(self, mode: Era) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=CALL_S) as http,
            Client(streamable_http_client(self._url, http_client=http), mode=mode) as client,
        ):
            yield client


class ToolError(Exception):
    """A call was answered with an error."""


async def main() -> None:
    _, url, kind = sys.argv
    team, ended = Team(url, sys.stdin.readline().strip()), asyncio.Event()
    await team.wait_for_all()
    await team.end_a_session()
    if kind == "execute":
        await team.add_document()
    async with asyncio.TaskGroup() as group:
        for mode in ERAS:
            group.create_task(team.call(kind, mode, ended))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        ended.set()
    print(f"{team.answered[kind]} calls answered, {len(team.failures)} lost", *team.failures[:MOST_SHOWN], sep="\n")
    print(json.dumps(team.answered))
    raise SystemExit(1 if team.failures else 0)


if __name__ == "__main__":
    asyncio.run(main())
