"""A raw client of either era: sends one JSON-RPC request and gives the answer's message, however it was carried."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from tests.gateway_process import GatewayProcess

Era = Literal["legacy", "modern"]
ERAS: tuple[Era, ...] = ("legacy", "modern")
ACCEPT = "application/json, text/event-stream"
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
WAIT_S = 30.0  # a bound against hanging

Json = dict[str, Any]


@dataclass(eq=False)
class Speaker:
    era: Era
    http: httpx2.AsyncClient
    url: str
    headers: dict[str, str]
    capabilities: Json = field(default_factory=dict)
    meta: Json = field(default_factory=dict)

    async def message(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """The whole answer: `result` or `error`."""
        response = await self.http.post(
            self.url, content=json.dumps(self._body(method, params or {})), headers=self._head(method, params or {})
        )
        for sent in _messages(response):
            if sent.get("id") == 1 and "method" not in sent:
                return sent
        raise AssertionError(f"{response.status_code}: {response.text}")

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        answer = await self.message(method, params)
        assert "result" in answer, str(answer)[:1000]
        result: Json = answer["result"]
        return result

    async def error(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        answer = await self.message(method, params)
        assert "error" in answer, str(answer)[:1000]
        error: Json = answer["error"]
        return error

    async def call(self, name: str, arguments: Json | None = None) -> Json:
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}})

    async def answering(
        self, method: str, params: Mapping[str, Any], answer: Json | Callable[[], Awaitable[Json]]
    ) -> Json:
        """A legacy client's request in which it is asked something, and answers that with `answer`."""
        body, head = self._body(method, params), self._head(method, params)
        async with self.http.stream("POST", self.url, content=json.dumps(body), headers=head) as response:
            async for message in _lines(response):
                if "method" not in message:
                    result: Json = message["result"]
                    return result
                given = answer if isinstance(answer, dict) else await answer()
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": given}
                sent = await self.http.post(self.url, content=json.dumps(reply), headers=self._head("", {}))
                assert sent.status_code == 202, sent.text
        raise AssertionError("the stream ended without an answer")

    async def every(self, method: str, of: str) -> list[Json]:
        """All pages of a list."""
        found: list[Json] = []
        cursor: str | None = None
        while True:
            page = await self.result(method, {} if cursor is None else {"cursor": cursor})
            found += page[of]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    @asynccontextmanager
    async def stream(self, *uris: str) -> AsyncIterator[Changes]:
        """What is told of changes: the GET stream, or a `subscriptions/listen` for all lists and for `uris`."""
        if self.era == "legacy":
            for uri in uris:
                await self.result("resources/subscribe", {"uri": uri})
            opening = self.http.stream("GET", self.url, headers={**self.headers, "Accept": "text/event-stream"})
        else:
            kinds = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
            wanted = {"notifications": {**kinds, "resourceSubscriptions": list(uris)}}
            body, head = self._body("subscriptions/listen", wanted), self._head("subscriptions/listen", wanted)
            opening = self.http.stream("POST", self.url, content=json.dumps(body), headers=head)
        async with opening as response:
            assert response.status_code == 200, await response.aread()
            changes = Changes(_lines(response))
            if self.era == "modern":
                await changes.next("notifications/subscriptions/acknowledged")
            yield changes

    def _body(self, method: str, params: Mapping[str, Any]) -> Json:
        meta = dict(self.meta)
        if self.era == "modern":
            meta |= {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": "speaker", "version": "1"},
            }
        sent = {**params, "_meta": meta} if meta else dict(params)
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}

    def _head(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        head = {**self.headers, "Accept": ACCEPT, "Content-Type": "application/json"}
        if self.era == "modern":
            head |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if method in NAMED:
                head["Mcp-Name"] = _header_value(str(params[NAMED[method]]))
        return head


@dataclass(eq=False)
class Changes:
    """A stream under way."""

    messages: AsyncIterator[Json]

    async def next(self, method: str) -> Json:
        """The next message of that method; others are passed over."""
        async with asyncio.timeout(WAIT_S):
            async for message in self.messages:
                if message.get("method") == method:
                    params: Json = message.get("params") or {}
                    return params
        raise AssertionError(f"the stream ended without {method}")


@asynccontextmanager
async def speaker(
    gateway: GatewayProcess,
    era: Era,
    *,
    project: str | None = None,
    token: str | None = None,
    capabilities: Json | None = None,
) -> AsyncIterator[Speaker]:
    headers = {"Authorization": f"Bearer {token or gateway.token}"}
    if project is not None:
        headers["X-Pointsman-Project"] = project
    async with httpx2.AsyncClient(timeout=20) as http:
        one = Speaker(era, http, gateway.url, headers, capabilities or {})
        if era == "legacy":
            await _shake_hands(one)
        yield one


async def _shake_hands(one: Speaker) -> None:
    info = {"name": "speaker", "version": "1"}
    params = {"protocolVersion": LEGACY, "capabilities": one.capabilities, "clientInfo": info}
    body = json.dumps(one._body("initialize", params))
    response = await one.http.post(one.url, content=body, headers=one._head("initialize", params))
    assert response.status_code == 200, response.text
    one.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
    one.headers["MCP-Protocol-Version"] = LEGACY


def _messages(response: httpx2.Response) -> list[Json]:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        lines = response.text.splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]
    found: Json = response.json()
    return [found]


async def _lines(response: httpx2.Response) -> AsyncIterator[Json]:
    async for line in response.aiter_lines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


def _header_value(value: str) -> str:
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
