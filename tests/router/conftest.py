"""A whole gateway over a small workshop, for tests that speak HTTP to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.core.postgres import Postgres
from pointsman.router.state.key_values import KeyValues
from pointsman.router.state.postgres_values import PostgresKeyValues
from pointsman.router.state.sqlite_values import SqliteKeyValues
from pointsman.router.state.tables import StateTables
from tests.gateway_process import GatewayProcess, gateway_process

WORKSHOP = Path(__file__).parents[1] / "servers" / "workshop.py"
FROM_FILE = WORKSHOP.with_name("from_file.py")
ACCEPT = "application/json, text/event-stream"

Open = Callable[[], KeyValues]
"""Opens a key-value store."""


@pytest.fixture(params=["sqlite", "postgres"])
def open_values(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store again and again, as several gateways do."""
    opened: list[Postgres] = []

    def open_postgres() -> KeyValues:
        opened.append(Postgres(request.getfixturevalue("database_url"), program="test"))
        return PostgresKeyValues(StateTables(opened[-1]))

    yield open_postgres if request.param == "postgres" else lambda: SqliteKeyValues(tmp_path)
    for postgres in opened:
        postgres.close()


def workshop(trace: Path, **settings: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", str(WORKSHOP), str(trace)], **settings}


def from_file(file: Path, tag: str, lists: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A server that offers what `file` holds, which is `lists` to begin with, and may change it without approval."""
    file.write_text(json.dumps(lists))
    started = {"command": sys.executable, "args": ["-S", str(FROM_FILE), str(file), tag], "era": "legacy"}
    return started | {"pin": "off"} | settings


@dataclass(frozen=True)
class Shop:
    """A gateway with a workshop behind it, and what the workshop was told."""

    gateway: GatewayProcess
    http: httpx2.AsyncClient
    trace: Path

    def ran(self) -> list[dict[str, Any]]:
        """Every call and cancellation that reached the workshop."""
        return [json.loads(line) for line in self.trace.read_text().splitlines()] if self.trace.exists() else []

    async def post(
        self, body: bytes | str | dict[str, Any], headers: dict[str, str] | None = None, path: str = "/mcp"
    ) -> httpx2.Response:
        content = json.dumps(body) if isinstance(body, dict) else body
        defaults = {"Accept": ACCEPT, "Content-Type": "application/json", **self.gateway.headers}
        merged = {name: value for name, value in (defaults | (headers or {})).items() if value}
        return await self.http.post(self.gateway.base_url + path, content=content, headers=merged)

    async def call(
        self, name: str, arguments: Any, headers: dict[str, str] | None = None, meta: dict[str, Any] | None = None
    ) -> httpx2.Response:
        """A modern `tools/call`, which needs no session."""
        given = {"name": name, "arguments": arguments, "_meta": meta or {}}
        return await self.request("tools/call", given, {"Mcp-Name": name} | (headers or {}))

    async def request(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        """A modern request."""
        envelope = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test-client", "version": "1"},
        }
        params = {**params, "_meta": envelope | params.get("_meta", {})}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.post(message, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method} | headers)

    async def search_prepared(self) -> None:
        """Connect as a client, and wait until the model is loaded: before that, words alone may answer."""
        assert (await self.request("server/discover", {}, {})).status_code == 200
        await self.gateway.until_logged("search is ready")

    async def execute(self, tool_key: str, arguments: Any = None) -> dict[str, Any]:
        response = await self.call("tool_execute", {"toolKey": tool_key, "arguments": arguments or {}})
        assert response.status_code == 200, response.text
        result: dict[str, Any] = response.json()["result"]
        return result

    async def rows(self, *options: str) -> list[dict[str, Any]]:
        """The audit, as the command prints it."""
        return await audit_rows(self.gateway.state_dir, *options)


async def audit_rows(state_dir: Path, *options: str) -> list[dict[str, Any]]:

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "audit", "list", "--json", "--state-dir", str(state_dir), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """One gateway for one test; `call_s` is small, so that what never comes is soon missed."""
    trace = tmp_path / "trace"
    config = {
        "projects": {"attic": {}},
        "servers": {
            "shop": workshop(trace, name="Workshop", tool_permissions={"erase": False}, timeouts={"call_s": 1}),
            "attic": workshop(trace, projects=["attic"]),
            "gone": {"command": "no-such-program-anywhere"},
        },
    }
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        yield Shop(gateway, http, trace)
