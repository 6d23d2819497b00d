"""The instructions of the handshake: what they say about a caller's servers, in both eras."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.catalog.overview import INSTRUCTIONS
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import WORKSHOP, from_file, workshop
from tests.router.raw_client import ERAS, Era, speaker

SHOP = f"{INSTRUCTIONS} Servers: Workshop (break, colour, crash, hang, paint, refuse, wait)."
# A workshop that never answers while the file of its first argument exists.
STUCK_IF = "import os, runpy, sys; file = sys.argv.pop(1); os.path.exists(file) and sys.stdin.read(); "
STUCK_IF += "sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


async def instructions(gateway: GatewayProcess, era: Era, project: str | None = None) -> str | None:
    if era == "modern":
        async with speaker(gateway, "modern", project=project) as client:
            answer = await client.result("server/discover")
    else:
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        headers = gateway.headers | {"Accept": "application/json, text/event-stream"}
        path = "/mcp" if project is None else f"/projects/{project}/mcp"
        async with httpx2.AsyncClient(timeout=30) as http:
            answer = (await http.post(gateway.base_url + path, json=message, headers=headers)).json()["result"]
    text: str | None = answer.get("instructions")
    return text


async def until_told(gateway: GatewayProcess, tool: str, project: str | None = None) -> None:
    """Wait for the first list of a server: the handshake waits only briefly for it, which is too short under load."""
    while tool not in (await instructions(gateway, "modern", project) or ""):
        await asyncio.sleep(0.02)


def config(folder: Path, **settings: Any) -> dict[str, Any]:
    hidden = {"tools": [{"name": "see\u200bthrough", "inputSchema": {}}, {"name": "look", "inputSchema": {}}]}
    return {
        "projects": {"red": {}, "quiet": {"catalog_in_instructions": False}, "flat": {"exposure": "flat"}},
        "servers": {
            "shop": workshop(folder / "trace", name="Workshop", tool_permissions={"erase": False}),
            "asleep": {
                "command": sys.executable,
                "args": ["-S", "-c", "import sys; sys.stdin.read()"],
                "projects": ["red"],
                "timeouts": {"connect_s": 3600, "list_s": 3600},
            },
            "odd": from_file(folder / "odd.json", "odd", hidden, projects=["red", "quiet", "flat"]),
        },
        **settings,
    }


@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_is_told_of_its_own_servers_and_a_hanging_one_delays_nobody(tmp_path: Path, era: Era) -> None:
    async with gateway_process(tmp_path, config(tmp_path), without=["asleep"]) as gateway, asyncio.timeout(60):
        await until_told(gateway, "paint")
        await until_told(gateway, "look", "red")
        assert await instructions(gateway, era) == SHOP
        assert await instructions(gateway, era, "red") == f"{INSTRUCTIONS} Servers: asleep; odd (look)."
        assert await instructions(gateway, era, "quiet") == INSTRUCTIONS
        assert await instructions(gateway, era, "flat") is None


async def test_both_eras_and_transports_give_the_same_bytes(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config(tmp_path), without=["asleep"]) as gateway, asyncio.timeout(60):
        await until_told(gateway, "paint")
        texts = {await instructions(gateway, era) for era in (*ERAS, *ERAS)}
        async with (
            httpx2.AsyncClient(timeout=30, headers=gateway.headers) as http,
            http.stream("GET", f"{gateway.base_url}/sse", headers={"Accept": "text/event-stream"}) as stream,
        ):
            lines = stream.aiter_lines()
            [path] = [line.removeprefix("data: ") async for line in first_data(lines)]
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
            assert (await http.post(gateway.base_url + path, json=message)).status_code == 202
            [answer] = [line.removeprefix("data: ") async for line in first_data(lines)]
        texts.add(json.loads(answer)["result"]["instructions"])
    assert texts == {SHOP}


async def first_data(lines: Any) -> Any:
    async for line in lines:
        if line.startswith("data: "):
            yield line
            return


async def test_what_was_listed_in_the_last_run_is_told_while_a_server_still_starts(tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    args = ["-S", "-c", STUCK_IF, str(stuck), str(WORKSHOP), str(tmp_path / "trace")]
    entry = {"command": sys.executable, "args": args, "name": "Workshop", "tool_permissions": {"erase": False}}
    entry["timeouts"] = {"connect_s": 3600, "list_s": 3600}
    servers = {"servers": {"shop": entry}}
    async with gateway_process(tmp_path, servers) as gateway, asyncio.timeout(60):
        await until_told(gateway, "paint")
        assert await instructions(gateway, "legacy") == SHOP
    kept = json.loads((gateway.state_dir / "servers.json").read_text())["servers"]["shop"]
    assert "paint" in kept["tools"]
    assert "Paint an object" not in (gateway.state_dir / "servers.json").read_text()
    stuck.touch()
    async with gateway_process(tmp_path, servers, without=["shop"]) as gateway, asyncio.timeout(60):
        for era in ERAS:
            assert await instructions(gateway, era) == SHOP


async def test_without_servers_or_discovery_the_instructions_promise_no_tools(tmp_path: Path) -> None:
    settings = {"projects": {"empty": {}, "off": {"optimization": None}}}
    servers = {"shop": workshop(tmp_path / "trace", projects=["off"])}
    async with gateway_process(tmp_path, {"servers": servers, **settings}) as gateway, asyncio.timeout(60):
        empty = await instructions(gateway, "modern", "empty")
        off = await instructions(gateway, "modern", "off")
    assert empty is not None
    assert off is not None
    assert "No server stands behind this gateway for you" in empty
    assert "discovery is switched off" in off
    assert "Many tools" not in empty + off
