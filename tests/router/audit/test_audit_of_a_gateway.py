"""Every discovery and execution of a whole gateway has a row, however it ended, and a kill loses none."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, audit_rows, workshop

FIELDS = [
    *("seq", "time", "requestId", "kind", "token", "project", "client", "queries", "toolKey", "serverId", "method"),
    *("outcome", "code", "ms", "results", "bytes", "provider", "fallback"),
]


def told(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


async def test_each_kind_of_end_has_its_row(shop: Shop) -> None:
    await shop.search_prepared()
    await shop.call("tool_discovery", {"query": ["paint a door", "hang it"]})
    await shop.call("tool_discovery", {"query": []})
    await shop.execute("shop:paint", {"object": "my secret door"})
    await shop.execute("shop:paint", {"coats": 1})
    await shop.execute("shop:break")
    await shop.call("tool_execute", {"toolKey": "shop:refuse"})
    await shop.execute("shop:erase")
    await shop.execute("shop:hang")
    await shop.execute("shop:crash")
    await shop.execute("gone:anything")
    await shop.call("paint", {})
    await shop.call("tool_execute", {"toolKey": "shop:paint"}, headers={"Authorization": "Bearer ptm_wrong"})
    await shop.call("tool_execute", {"toolKey": "shop:paint"}, headers={"X-Pointsman-Project": "cellar"})

    rows = await shop.rows()
    assert [told(row, "kind", "outcome", "code", "toolKey") for row in rows] == [
        ("discovery", "ok", None, None),
        ("discovery", "error", "invalid_arguments", None),
        ("execute", "ok", None, "shop:paint"),
        ("execute", "error", "invalid_arguments", "shop:paint"),
        ("execute", "error", "tool_error", "shop:break"),
        ("execute", "error", "-32000", "shop:refuse"),
        ("execute", "denied", "unknown_tool", "shop:erase"),
        ("execute", "timeout", "timeout", "shop:hang"),
        ("execute", "error", "server_unavailable", "shop:crash"),
        ("execute", "error", "server_unavailable", "gone:anything"),
        ("execute", "denied", "unknown_tool", "paint"),
        ("execute", "denied", "unauthorized", "shop:paint"),
        ("execute", "denied", "denied", "shop:paint"),
    ]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert all([name for name in row if name != "readAs"] == FIELDS for row in rows)
    assert [row.get("readAs") for row in rows if "readAs" in row] == ["no_arguments"]
    discovery, paint = rows[0], rows[2]
    assert told(discovery, "queries", "provider", "fallback") == (["paint a door", "hang it"], "bm25+static", False)
    assert discovery["results"] > 0
    assert discovery["bytes"] > 100
    assert told(paint, "token", "project", "client", "serverId", "method") == (
        "test",
        None,
        "test-client",
        "shop",
        "tools/call",
    )
    assert told(rows[11], "token", "client") == (None, "test-client")
    assert rows[12]["token"] == "test"
    assert "my secret door" not in str(rows)  # arguments are recorded only if the configuration says so
    assert shop.gateway.token not in str(rows)
    assert "ptm_wrong" not in str(rows)


async def test_a_client_that_leaves_cancels_its_call_and_the_row_says_so(shop: Shop) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        await shop.http.post(
            shop.gateway.url,
            timeout=httpx2.Timeout(10, read=0.3),
            **modern_call("tool_execute", {"toolKey": "shop:hang"}, shop.gateway.headers),
        )
    async with asyncio.timeout(30):
        while [row["outcome"] for row in await shop.rows()] != ["cancelled"]:
            await asyncio.sleep(0.02)
    assert [message["method"] for message in shop.ran()] == ["tools/call", "notifications/cancelled"]


def modern_call(name: str, arguments: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    routing = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return {
        "headers": headers | routing | {"Accept": "application/json, text/event-stream"},
        "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
    }


async def test_a_kill_under_load_loses_no_acknowledged_call_and_no_intent(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with (
        gateway_process(tmp_path, {"servers": {"shop": workshop(trace)}}) as gateway,
        httpx2.AsyncClient(timeout=20) as http,
    ):
        acknowledged = 0

        async def keep_calling() -> None:
            nonlocal acknowledged
            call = modern_call("tool_execute", {"toolKey": "shop:paint", "arguments": {"object": "x"}}, gateway.headers)
            while True:
                response = await http.post(gateway.url, **call)
                acknowledged += "painted" in response.text

        callers = [asyncio.create_task(keep_calling()) for _ in range(8)]
        async with asyncio.timeout(20):
            while acknowledged < 200:
                await asyncio.sleep(0.01)
        await gateway.stop(signal.SIGKILL)
        await asyncio.gather(*callers, return_exceptions=True)
    rows = await audit_rows(gateway.state_dir)
    assert sum(row["outcome"] == "ok" for row in rows) >= acknowledged
    assert len(rows) >= len(trace.read_text().splitlines())
    assert {row["outcome"] for row in rows} <= {"ok", "interrupted"}
    assert len({row["seq"] for row in rows}) == len(rows)


async def test_arguments_are_recorded_when_asked_for_with_secrets_masked(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, "audit": {"arguments": True}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        await shop.execute("shop:erase", {"what": "all", "password": "hunter2", "note": gateway.token})
        [row] = await shop.rows()
    assert row["arguments"]["what"] == "all"
    assert "hunter2" not in str(row)
    assert gateway.token not in str(row)
