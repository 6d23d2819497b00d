"""A gateway with an issuer in `auth`, and requests to it over plain HTTP."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.gateway_process import GatewayProcess
from tests.router.auth.issuer import PUBLIC_URL, Issuer, Json
from tests.router.conftest import audit_rows
from tests.servers import workshop

MODERN, LEGACY = "2026-07-28", "2025-11-25"
WAIT_S = 30.0
META = "/.well-known/oauth-protected-resource"
EFFECTS = [
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "note", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": False}},
]


@dataclass(eq=False)
class Shop:
    """A gateway with two servers in front of which one can sign in."""

    gateway: GatewayProcess
    issuer: Issuer
    http: httpx2.AsyncClient
    trace: Path
    config: Json

    def token(self, **claims: Any) -> str:
        return self.issuer.token(**claims)

    async def send(
        self, token: str | None, method: str, params: Json | None = None, path: str = "/mcp"
    ) -> httpx2.Response:
        """A request of the modern era."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "visitor", "version": "1"},
        }
        head = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if params and "name" in params:
            head["Mcp-Name"] = params["name"]
        if token is not None:
            head["Authorization"] = f"Bearer {token}"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}
        return await self.http.post(f"{self.gateway.base_url}{path}", json=body, headers=head)

    async def execute(self, token: str | None, tool: str, path: str = "/mcp", **arguments: Any) -> httpx2.Response:
        given = {"toolKey": tool, "arguments": arguments}
        return await self.send(token, "tools/call", {"name": "tool_execute", "arguments": given}, path)

    def executed(self) -> int:
        return len(self.trace.read_text().splitlines()) if self.trace.exists() else 0

    async def last_row(self, code: str | None = None) -> Json:
        options = ("--code", code) if code else ()
        rows = await audit_rows(self.gateway.state_dir, *options)
        return rows[-1]

    @asynccontextmanager
    async def nothing_executed(self) -> AsyncIterator[None]:
        before = self.executed()
        yield
        assert self.executed() == before


def config_of(folder: Path, issuer: Issuer) -> Json:
    (folder / "effects.json").write_text(json.dumps(EFFECTS))
    program = [workshop.__file__, str(folder / "trace.jsonl")]
    server = {
        "command": sys.executable,
        "args": ["-S", *program],
        "env": {"MORE_TOOLS": str(folder / "effects.json")},
        "trust_annotations": True,
    }
    return {
        "listen": {"public_url": PUBLIC_URL},
        "projects": {"demo": {}, "other": {}, "flat": {"exposure": "flat"}},
        "servers": {"shop": server, "demo": {**server, "projects": ["demo"]}, "flat": {**server, "projects": ["flat"]}},
        "auth": {
            "issuer": issuer.url,
            "claims": {
                "limited": {
                    "when": {"groups": "limited"},
                    "projects": [""],
                    "servers": ["*"],
                    "rates": {"calls_per_minute": 2},
                },
                "careful": {
                    "when": {"groups": "careful"},
                    "projects": [""],
                    "servers": ["*"],
                    "confirm": "destructive",
                },
                "readers": {"when": {"groups": "readers"}, "projects": ["*"], "servers": ["*"], "scopes": ["read"]},
                "staff": {"when": {"groups": "staff"}, "projects": ["*"], "servers": ["*"]},
            },
        },
    }


def challenge_of(response: httpx2.Response) -> dict[str, str]:
    value = response.headers["www-authenticate"]
    assert value.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', value))


def error_of(response: httpx2.Response) -> str:
    return str(response.json()["error"]["message"])


def structured(response: httpx2.Response) -> Json:
    assert response.status_code == 200, response.text
    found: Json = response.json()["result"]["structuredContent"]
    return {**found, **found.get("result", {})}
