"""`pointsman status`: how the gateway is, and what it saves."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from tests.gateway_process import gateway_process
from tests.router.cli.commands import run
from tests.router.conftest import Shop
from tests.router.raw_client import speaker
from tests.servers.workshop import TOOLS


async def test_without_a_gateway_it_says_so_with_its_own_exit_code(tmp_path: Path) -> None:
    ran = await run(tmp_path, "status", "--json")
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr.startswith("No gateway runs with the state folder")
    assert "`pointsman serve` starts one" in ran.stderr


async def test_servers_calls_and_savings_are_told(shop: Shop, tmp_path: Path) -> None:
    async with speaker(shop.gateway, "modern") as client:
        listed = await client.result("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["tool_discovery", "tool_execute"]
        found = await client.call("tool_discovery", {"query": ["paint a chair"]})
        await client.call("tool_execute", {"toolKey": "shop:paint", "arguments": {"object": "chair"}})
        await client.call("tool_execute", {"toolKey": "shop:nothing"})
    ran = await run(tmp_path, "status", "--json")
    assert ran.code == 0, ran.stderr
    told = ran.json
    assert told["url"] == shop.gateway.url
    assert told["process"] == shop.gateway.pid
    assert told["configuration"] == str(shop.gateway.config_file)
    assert (told["servers"]["running"], told["servers"]["enabled"]) == (2, 3)
    by_id = {one["id"]: one for one in told["servers"]["list"]}
    assert by_id["shop"]["state"] == "running"
    assert by_id["shop"]["tools"] > 3
    assert by_id["gone"]["state"] == "failed"
    assert "no-such-program-anywhere" in by_id["gone"]["reason"]
    assert told["calls"]["calls"] == by_id["shop"]["calls"] == 1
    assert told["calls"]["refused"] == 1
    assert 0 < told["calls"]["p50Ms"] <= told["calls"]["p99Ms"]
    assert told["calls"]["discoveries"] == 1
    context = told["context"]
    assert context["basis"] == "characters / 4"
    assert (context["conversations"], context["discoveries"]) == (1, 1)
    assert context["discoveryTokens"] == round(len(found["content"][0]["text"]) / 4)
    assert context["tools"] == 2 * len(TOOLS) - 1  # `erase` is switched off in one of the two workshops
    usable = sum(_tokens(tool) for tool in TOOLS if tool["name"] != "erase")
    expected = usable - context["ownToolsTokens"] - context["discoveryTokens"]
    assert abs(context["savedTokens"] - expected) < 40  # the instructions differ between callers
    assert shop.gateway.token not in ran.stdout

    shown = await run(tmp_path, "status")
    assert shown.code == 0
    assert "Servers: 2 of 3 running" in shown.stdout
    assert "Saved: nothing yet" in shown.stdout  # so few and small tools are cheaper without a gateway
    assert "estimate: characters / 4" in shown.stdout
    assert "\x1b" not in shown.stdout


def _tokens(tool: dict[str, Any]) -> float:
    shown = {key: tool[key] for key in ("name", "description", "inputSchema")}
    return len(json.dumps([shown], separators=(",", ":"))) / 4


async def test_a_line_after_the_ready_line_tells_what_is_missing_and_why(shop: Shop) -> None:
    await shop.gateway.until_logged("pointsman has ")
    ready, *after = [line for line in shop.gateway.lines if line.startswith("pointsman ")]
    assert ready == f"pointsman ready on {shop.gateway.url}"
    [line] = after
    assert "tools on 2 of 3 servers; missing: `gone` (" in line
    assert "no-such-program-anywhere" in line


async def test_the_channel_outlives_many_clients_at_once(shop: Shop, tmp_path: Path) -> None:
    ran = await asyncio.gather(*(run(tmp_path, "status", "--json") for _ in range(4)))
    assert [json.loads(each.stdout)["ready"] for each in ran] == [True] * 4


async def test_after_a_kill_the_next_gateway_is_reached_also_at_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("a-long-name-" * 12)
    folder.mkdir()
    async with gateway_process(folder, {"servers": {}}) as gateway:
        assert (await run(folder, "status", "--json")).json["process"] == gateway.pid
        gateway.send_signal(signal.SIGKILL)
        await gateway.process.wait()
        left = gateway.state_dir / "owner.sock"
        assert left.is_socket()
        assert len(str(left)) > 107
        assert (await run(folder, "status")).code == 3
        async with gateway_process(folder, {"servers": {}}) as second:
            assert (await run(folder, "status", "--json")).json["process"] == second.pid
    assert not left.exists()
