"""`exposure: flat`: each usable tool under its own name, through the same code, permissions and audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types.methods import parse_server_result

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows, from_file, workshop
from tests.router.raw_client import ERAS, LEGACY, MODERN, Era, speaker


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    async with gateway_process(folder, config(folder)) as process:
        yield process


def config(folder: Path, **settings: Any) -> dict[str, Any]:
    return {
        "unassigned": {"exposure": "flat"},
        "projects": {"two-tools": {}},
        "servers": {
            "shop": workshop(folder / "trace", tool_permissions={"erase": False}, timeouts={"call_s": 1}),
            "gone": {"command": "no-such-program-anywhere"},
            "other": workshop(folder / "trace", projects=["two-tools"]),
            "first": workshop(folder / "first", prefix="", env={"COLOUR": "red"}),
            "second": workshop(folder / "second", prefix="", env={"COLOUR": "blue"}),
            **settings,
        },
    }


@pytest.mark.parametrize("era", ERAS)
async def test_every_usable_tool_is_listed_with_its_schema_and_the_two_tools_are_not(
    gateway: GatewayProcess, era: Era
) -> None:
    async with speaker(gateway, era) as client:
        tools = {tool["name"]: tool for tool in await client.every("tools/list", "tools")}
        assert {"shop__paint", "shop__hang", "paint", "erase"} <= tools.keys()
        assert not tools.keys() & {"tool_discovery", "tool_execute", "shop__erase", "other__paint"}
        assert tools["shop__paint"]["inputSchema"]["required"] == ["object"]
        assert tools["shop__paint"]["annotations"] == {"destructiveHint": True}
        assert len([name for name in tools if name == "paint"]) == 1
    async with speaker(gateway, era, project="two-tools") as client:
        listed = await client.every("tools/list", "tools")
        assert [tool["name"] for tool in listed] == ["tool_discovery", "tool_execute"]
        assert all(tool["_meta"]["anthropic/alwaysLoad"] is True for tool in listed)


async def test_the_introduction_tells_what_holds_for_the_project(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "modern") as flat, speaker(gateway, "modern", project="two-tools") as meta:
        shown, two = await flat.result("server/discover"), await meta.result("server/discover")
    assert "instructions" not in shown
    assert "tool_discovery" in two["instructions"]
    assert shown["capabilities"]["tools"] == {"listChanged": True}
    assert two["capabilities"]["tools"] == {}
    for carried in ("resources", "prompts", "completions", "logging"):
        assert carried in shown["capabilities"]
        assert carried in two["capabilities"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_is_called_by_its_name_and_answers_as_it_did(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era) as client:
        answer = await client.call("shop__paint", {"object": "door"})
        assert answer["structuredContent"] == {"painted": "door", "coats": 1}
        assert [block["type"] for block in answer["content"]] == ["text", "image"]
        broken = await client.call("shop__break")
        assert broken["isError"] is True
        refused = await client.error("tools/call", {"name": "shop__refuse", "arguments": {}})
        assert (refused["code"], refused["data"]) == (-32000, {"until": "morning"})


@pytest.mark.parametrize("era", ERAS[:1])
async def test_arguments_are_checked_and_nothing_is_sent(tmp_path: Path, era: Era) -> None:
    async with gateway_process(tmp_path, config(tmp_path)) as gateway, speaker(gateway, era) as client:
        answer = await client.call("shop__paint", {"coats": 0})
        assert answer["isError"] is True
        assert answer["structuredContent"]["error"]["code"] == "invalid_arguments"
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["shop__erase", "shop__nothing", "other__paint", "tool_execute", "shop__", "nothing"])
async def test_what_may_not_be_used_looks_like_what_does_not_exist(gateway: GatewayProcess, name: str) -> None:
    async with speaker(gateway, "modern") as client:
        error = await client.error("tools/call", {"name": name, "arguments": {}})
        unknown = await client.error("tools/call", {"name": "no-such-name", "arguments": {}})
    assert error == unknown
    assert error["code"] == -32602


async def test_a_server_that_is_away_is_named(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "modern") as client:
        answer = await client.call("gone__anything")
    assert answer["structuredContent"]["error"]["code"] == "server_unavailable"
    assert "`gone`" in answer["structuredContent"]["error"]["message"]


async def test_on_a_clash_the_first_in_the_file_wins_and_it_is_logged(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config(tmp_path)) as gateway, speaker(gateway, "modern") as client:
        assert (await client.call("colour"))["content"][0]["text"] == "red"
        await client.every("tools/list", "tools")
        assert (await client.call("colour"))["content"][0]["text"] == "red"
    assert "'colour' of server second is hidden: server first has that name, too" in gateway.stderr


async def test_a_name_never_goes_over_to_another_server_while_its_own_is_away(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config(tmp_path)) as gateway, speaker(gateway, "modern") as client:
        assert (await client.call("colour"))["content"][0]["text"] == "red"
        await client.call("crash")  # of `first`
        answer = await client.call("colour")
        said = answer["content"][0]["text"]
        assert said == "red" or answer["structuredContent"]["error"]["code"] == "server_unavailable"


async def test_each_call_is_a_row_under_the_tools_key(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config(tmp_path)) as gateway, speaker(gateway, "modern") as client:
        await client.call("shop__paint", {"object": "door"})
        await client.call("colour")
        await client.error("tools/call", {"name": "shop__erase", "arguments": {}})
        await client.error("tools/call", {"name": "nothing", "arguments": {}})
    rows = await audit_rows(gateway.state_dir)
    seen = [(row["kind"], row["toolKey"], row["serverId"], row["outcome"], row["code"]) for row in rows]
    assert seen[0] == ("execute", "shop:paint", "shop", "ok", None)
    assert seen[1] == ("execute", "first:colour", "first", "ok", None)
    assert seen[2] == ("execute", "shop:erase", "shop", "denied", "unknown_tool")
    assert seen[3][3:] == ("denied", "unknown_tool")


async def test_a_reload_changes_the_exposure_of_open_sessions(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config(tmp_path)) as gateway, speaker(gateway, "legacy") as client:
        assert len(await client.every("tools/list", "tools")) > 2
        gateway.write_config({**config(tmp_path), "unassigned": {"exposure": "meta"}})
        async with asyncio.timeout(30):
            while len(await client.every("tools/list", "tools")) != 2:
                await asyncio.sleep(0.02)
        assert (await client.error("tools/call", {"name": "shop__paint", "arguments": {}}))["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("project", [None, "two-tools"])
async def test_a_forged_cursor_is_refused_in_either_exposure(
    gateway: GatewayProcess, era: Era, project: str | None
) -> None:
    async with speaker(gateway, era, project=project) as client:
        for cursor in ("bm90IG91cnM", "", "!"):
            assert (await client.error("tools/list", {"cursor": cursor}))["code"] == -32602


MALFORMED: dict[str, Any] = {
    "tools": [
        {"name": "meta", "_meta": "x", "inputSchema": {"type": "object"}},
        {"name": "texts", "description": 5, "title": ["a"], "inputSchema": {"type": "object"}},
        {"name": "icons", "icons": "x", "execution": "x", "annotations": "x", "inputSchema": {"type": "object"}},
        {"name": "output", "outputSchema": "x", "inputSchema": {"type": "object"}},
        {"name": "absent"},
        {"name": "untyped", "inputSchema": {}},
        {"name": "list", "inputSchema": {"type": ["object"], "properties": "x"}, "outputSchema": {"type": "array"}},
        {"name": "text", "inputSchema": "x"},
        {"name": "null", "inputSchema": None},
    ],
    "resources": [{"uri": "note://a", "title": 5, "size": "x", "annotations": "x"}],
    "resourceTemplates": [{"uriTemplate": "note://{x}", "name": 5, "mimeType": 5, "_meta": "x"}],
    "prompts": [{"name": "ask", "description": 5, "arguments": [{"name": "who", "required": "x"}, {}], "icons": "x"}],
}


@pytest.mark.parametrize("era", ERAS)
async def test_malformed_definitions_of_one_server_leave_the_lists_of_all_readable(tmp_path: Path, era: Era) -> None:
    odd = from_file(tmp_path / "lists.json", "odd", MALFORMED)
    flat = {"unassigned": {"exposure": "flat"}, "servers": {"shop": workshop(tmp_path / "trace"), "odd": odd}}
    pages = {}
    async with gateway_process(tmp_path, flat) as process, speaker(process, era) as client:
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            pages[method] = await client.result(method)
            parse_server_result(method, MODERN if era == "modern" else LEGACY, pages[method])
        called = await client.call("odd__texts", {"a": 1})
    names = [tool["name"] for tool in pages["tools/list"]["tools"]]
    assert names[-7:] == [f"odd__{tool['name']}" for tool in MALFORMED["tools"][:-2]]
    assert "shop__paint" in names
    assert called["structuredContent"]["arguments"] == {"a": 1}
    assert "server odd: skipped 2 invalid or duplicate tools" in process.stderr


async def test_a_client_is_not_sent_the_example_requests_of_the_archive(tmp_path: Path) -> None:
    flat = {"unassigned": {"exposure": "flat"}, "servers": {"archive": {"bundled": "archive"}}}
    async with gateway_process(tmp_path, flat) as process, speaker(process, "modern") as client:
        listed = await client.every("tools/list", "tools")
    assert len(listed) == 15
    assert not any("_meta" in tool for tool in listed)
