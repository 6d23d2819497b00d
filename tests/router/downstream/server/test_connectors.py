"""Entries of the configuration become connections, and a whole fleet of real children lives and heals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.model import GatewayConfig, Limits
from pointsman.config.sections.server import Server
from pointsman.router.downstream.server.connectors import Connectors
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.stderr_log import ServerLogs
from pointsman.router.downstream.stdio.child import SystemProcesses
from pointsman.router.downstream.stdio.guard import Guard
from tests.router.downstream.http_parts import PATIENCE_S, Back, Notices, front_request, until
from tests.servers.http_mcp import serving

STDIO_SERVER = Path(__file__).parents[3] / "servers" / "stdio_server.py"
STDIO: dict[str, Any] = {"command": sys.executable, "args": [str(STDIO_SERVER)]}


@asynccontextmanager
async def connectors(folder: Path) -> AsyncIterator[Connectors]:
    guard = Guard()
    await guard.start()
    try:
        yield Connectors(SystemProcesses(guard), folder, ServerLogs(folder))
    finally:
        await guard.close()


@asynccontextmanager
async def fleet_with(folder: Path, servers: dict[str, Any]) -> AsyncIterator[Fleet]:
    async with asyncio.timeout(PATIENCE_S), connectors(folder) as make_connect:
        fleet = Fleet(make_connect, clock=time.time, on_change=lambda server_id, change: None)
        try:
            await fleet.apply(GatewayConfig.model_validate({"servers": servers}))
            await fleet.settled()
            yield fleet
        finally:
            await fleet.close(1.0)


async def echo(fleet: Fleet, server_id: str) -> str:
    server = fleet.servers.get(server_id)
    assert server is not None
    params = {"name": "echo", "arguments": {"text": "hi"}}
    return str(await server.request("tools/call", params, front_request(), Back()))


async def test_the_bundled_archive_gets_its_index_and_its_roots(tmp_path: Path) -> None:
    entry = Server.model_validate({"bundled": "archive", "roots": {"app": tmp_path}, "env": {"A": "1"}})
    command = Connectors(SystemProcesses(None), tmp_path, ServerLogs(tmp_path)).command_of("notes", entry)
    assert command.argv == (sys.executable, "-P", "-m", "pointsman.archive")
    assert command.env["SEARCH_DB_PATH"] == str(tmp_path / "archive-notes.db")
    assert json.loads(command.env["POINTSMAN_ARCHIVE_ROOTS"]) == {"app": str(tmp_path)}
    assert command.env["A"] == "1"


async def test_a_bundled_archive_with_its_own_index_keeps_it(tmp_path: Path) -> None:
    entry = Server.model_validate({"bundled": "archive", "db": tmp_path / "own.db"})
    command = Connectors(SystemProcesses(None), tmp_path, ServerLogs(tmp_path)).command_of("notes", entry)
    assert command.env["SEARCH_DB_PATH"] == str(tmp_path / "own.db")


async def test_the_bundled_archive_runs(tmp_path: Path) -> None:
    async with fleet_with(tmp_path, {"archive": {"bundled": "archive"}}) as fleet:
        server = fleet.servers.get("archive")
        assert server is not None
        assert server.status.state == "running", server.status.reason
        page = await server.tools_page(None)
        assert page["tools"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_children_and_http_servers_serve_side_by_side(tmp_path: Path, era: Any) -> None:
    async with serving(era) as http:
        child = STDIO | {"args": [*STDIO["args"], "--era", era]}
        async with fleet_with(tmp_path, {"child": child, "http": {"url": http.url}}) as fleet:
            assert {status.state for status in fleet.statuses().values()} == {"running"}
            assert "hi" in await echo(fleet, "child")
            assert "hi" in await echo(fleet, "http")


async def test_secrets_of_the_entry_reach_the_server_as_headers(tmp_path: Path) -> None:
    async with serving("modern") as http, connectors(tmp_path) as make_connect:
        entry = Server.model_validate({"url": http.url, "headers": {"Authorization": "Bearer x"}})
        connection = await make_connect("s", entry, Limits())(Notices())
        await connection.close()
    assert http.headers[0]["Authorization"] == "Bearer x"


async def test_a_child_that_is_killed_is_back_by_itself(tmp_path: Path) -> None:
    async with fleet_with(tmp_path, {"child": STDIO}) as fleet:
        server = fleet.servers.get("child")
        assert server is not None
        pid = await child_pid(fleet)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: server.restarts == 1 and server.status.state == "running")
        assert "hi" in await echo(fleet, "child")
        assert await child_pid(fleet) != pid


async def child_pid(fleet: Fleet) -> int:
    server = fleet.servers.get("child")
    assert server is not None
    result = await server.request("tools/call", {"name": "environment"}, front_request(), Back())
    return int(result["structuredContent"]["pid"])


async def test_a_program_that_is_missing_fails_with_the_reason_and_is_tried_again(tmp_path: Path) -> None:
    async with fleet_with(tmp_path, {"none": {"command": "no-such-program"}}) as fleet:
        status = fleet.statuses()["none"]
        assert status.state == "failed"
        assert "no-such-program" in status.reason
