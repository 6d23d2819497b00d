"""One token must not take all connections with open streams, nor push the sessions of others out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process

LONG_S = 60.0  # against hanging
SECRETS = {name: f"ptm_{name * 20}" for name in ("anna", "ben")}
TOKENS = {
    name: {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "projects": ["*"], "servers": ["*"]}
    for name, secret in SECRETS.items()
}
MODERN = "2026-07-28"
STREAM = "text/event-stream"
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Visitor:
    def __init__(self, http: httpx2.AsyncClient, url: str, name: str) -> None:
        self._http = http
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {SECRETS[name]}",
            "Accept": f"application/json, {STREAM}",
        }

    async def post(self, method: str, params: Any = None, **headers: str) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return await self._http.post(self._url, json=message, headers=self._headers | headers)

    async def session(self) -> str:
        answer = await self.post("initialize", HELLO)
        assert answer.status_code == 200, answer.text
        session_id: str = answer.headers["mcp-session-id"]
        return session_id

    async def open(self, stack: AsyncExitStack, kind: str) -> httpx2.Response:
        """A stream that stays open until the stack is closed, or the refusal."""
        if kind == "listen":
            return await self._listen(stack)
        url, headers = self._url.replace("/mcp", "/sse"), self._headers
        if kind == "get":
            url, headers = self._url, headers | {"Mcp-Session-Id": await self.session()}
        return await stack.enter_async_context(self._http.stream("GET", url, headers=headers))

    async def _listen(self, stack: AsyncExitStack) -> httpx2.Response:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = self._headers | {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
        return await stack.enter_async_context(self._http.stream("POST", self._url, json=message, headers=headers))


@asynccontextmanager
async def visited(folder: Path, **limits: int) -> AsyncIterator[tuple[GatewayProcess, Visitor, Visitor]]:
    config = {"tokens": TOKENS, "limits": limits}
    async with (
        asyncio.timeout(LONG_S),
        gateway_process(folder, config, token=SECRETS["anna"]) as gateway,
        httpx2.AsyncClient(timeout=LONG_S, limits=httpx2.Limits(max_connections=None)) as http,
    ):
        yield gateway, Visitor(http, gateway.url, "anna"), Visitor(http, gateway.url, "ben")


@pytest.mark.parametrize("kind", ["get", "sse", "listen"])
async def test_streams_of_one_token_leave_connections_to_the_others(tmp_path: Path, kind: str) -> None:
    async with visited(tmp_path, connections=40) as (_, anna, ben), AsyncExitStack() as stack:
        answers = [await anna.open(stack, kind) for _ in range(10)]
        assert {answer.headers["content-type"] for answer in answers} == {STREAM}
        refused = [await anna.open(stack, kind) for _ in range(40)]
        for refusal in refused:
            assert b"quarter of `limits.connections`" in await refusal.aread()
            assert refusal.json()["error"]["data"] == {"code": "rate_limited"}
            if kind != "listen":  # where the method is not named by the answer's status, JSON-RPC says it
                assert (refusal.status_code, refusal.headers["retry-after"]) == (429, "5")
        assert (await ben.open(stack, kind)).headers["content-type"] == STREAM
        assert (await ben.post("initialize", HELLO)).status_code == 200


async def test_all_kinds_of_streams_count_as_one_share_and_come_free_when_they_end(tmp_path: Path) -> None:
    async with visited(tmp_path, connections=12) as (_, anna, _ben):
        async with AsyncExitStack() as stack:
            for kind in ("get", "sse", "listen"):
                assert (await anna.open(stack, kind)).headers["content-type"] == STREAM
            assert (await anna.open(stack, "sse")).status_code == 429
        async with AsyncExitStack() as stack:
            while (await anna.open(stack, "sse")).status_code == 429:
                await asyncio.sleep(0.05)


async def test_a_session_that_opens_its_stream_again_needs_no_second_place(tmp_path: Path) -> None:
    async with visited(tmp_path, connections=4) as (gateway, anna, _), AsyncExitStack() as stack:
        session_id = await anna.session()
        headers = {"Authorization": f"Bearer {SECRETS['anna']}", "Accept": STREAM, "Mcp-Session-Id": session_id}
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=LONG_S))
        for _ in range(5):
            answer = await stack.enter_async_context(http.stream("GET", gateway.url, headers=headers))
            assert answer.status_code == 200


async def test_sessions_of_one_token_do_not_push_out_those_of_another(tmp_path: Path) -> None:
    """A log level is not in the id of a session: one that is pushed out cannot be taken up again by its id."""
    async with visited(tmp_path, sessions=8) as (_, anna, ben):
        session = {"Mcp-Session-Id": await ben.session()}
        assert (await ben.post("logging/setLevel", {"level": "error"}, **session)).status_code == 200
        for _ in range(20):
            await anna.session()
        assert (await ben.post("ping", **session)).status_code == 200
