"""`tool_execute` as models write it: what has one meaning is carried out, and the row says how it was read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.router.gateway.execute_parameters import MAX_LEVELS, result_handle
from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, from_file, workshop

LONG_S = 30
STRICT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
CALL = {"type": "object", "properties": {"toolKey": {"type": "string"}, "arguments": {"type": "object"}}}
LISTS = {
    "tools": [
        {"name": "forecast", "inputSchema": STRICT},
        {"name": "note", "inputSchema": {"type": "object"}},  # takes anything, an envelope included
        {"name": "erase", "inputSchema": {"type": "object"}},
        {"name": "wait", "inputSchema": {"type": "object"}},
        {"name": "dotted.name", "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        {"name": "echo", "inputSchema": {"type": "object", "properties": {"arguments": {}}, "required": ["arguments"]}},
        {"name": "relay", "inputSchema": {"$ref": "#/$defs/call", "$defs": {"call": CALL}}},
    ]
}
BERLIN = {"city": "Berlin"}
KEY = "weather:forecast"


def nested(key: str, arguments: Any, levels: int) -> dict[str, Any]:
    """A call that is wrapped in itself."""
    for _ in range(levels):
        arguments = {"toolKey": key, "arguments": arguments}
    wrapped: dict[str, Any] = arguments
    return wrapped


def config(folder: Path) -> dict[str, Any]:
    return {
        "projects": {"attic": {}},
        "servers": {
            "weather": from_file(folder / "weather.json", "weather", LISTS, tool_permissions={"erase": False}),
            "shop": workshop(folder / "trace", tool_permissions={"erase": False}),
            "attic": from_file(folder / "attic.json", "attic", {"tools": [{"name": "secret"}]}, projects=["attic"]),
        },
    }


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("gateway")
    async with gateway_process(folder, config(folder)) as process, httpx2.AsyncClient(timeout=20) as http:
        yield Shop(process, http, folder / "trace")


async def execute(gateway: Shop, given: dict[str, Any]) -> dict[str, Any]:
    response = await gateway.call("tool_execute", given)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()["result"]
    return result


async def refusal(gateway: Shop, given: dict[str, Any]) -> tuple[str, str]:
    result = await execute(gateway, given)
    assert result.get("isError") is True, result
    error = result["structuredContent"]["error"]
    return error["code"], error["message"]


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ({"toolKey": KEY, "arguments": BERLIN}, None),
        ({"toolKey": KEY, "arguments": json.dumps(BERLIN)}, "json_text"),
        ({"toolKey": KEY, **BERLIN}, "beside"),
        ({"toolKey": KEY, "arguments": {}, **BERLIN}, "beside"),
        ({"toolKey": KEY, "arguments": {"toolKey": KEY, "arguments": BERLIN}}, "envelope"),
        ({"toolKey": KEY, "arguments": {"toolKey": "forecast", "arguments": BERLIN}}, "envelope"),
        ({"toolKey": KEY, "arguments": {"arguments": BERLIN}}, "envelope"),
        ({"toolKey": KEY, "arguments": {"toolKey": KEY, **BERLIN}}, "beside+envelope"),
        ({"toolKey": KEY, "arguments": {"toolKey": KEY, "arguments": json.dumps(BERLIN)}}, "json_text+envelope"),
        ({"arguments": {"toolKey": KEY, "arguments": BERLIN}}, "envelope"),
        ({"toolKey": "tool_execute", "arguments": {"toolKey": KEY, "arguments": BERLIN}}, "envelope"),
        ({"toolKey": "weather__forecast", "arguments": BERLIN}, "qualified_name"),
        ({"toolKey": "weather.forecast", "arguments": BERLIN}, "qualified_name"),
        ({"toolKey": "mcp__pointsman__weather:forecast", "arguments": BERLIN}, "qualified_name"),
        ({"toolKey": "forecast", "arguments": BERLIN}, "bare_name"),
        ({"toolKey": "forecast", **BERLIN}, "beside+bare_name"),
        ({"toolKey": "forecast", "arguments": {"toolKey": KEY, "arguments": BERLIN}}, "bare_name+envelope"),
        ({"toolKey": KEY, "arguments": {"toolKey": "weather__forecast", "arguments": BERLIN}}, "envelope"),
        ({"toolKey": f" `{KEY}`\n", "arguments": BERLIN}, "trimmed"),
        ({"toolKey": "'forecast'", "arguments": BERLIN}, "trimmed+bare_name"),
        ({"toolKey": KEY, "arguments": json.dumps(json.dumps(BERLIN))}, "json_text"),
        ({"toolKey": KEY, "arguments": nested(KEY, BERLIN, 2)}, "envelope"),
        ({"toolKey": KEY, "arguments": nested("mcp__pointsman__weather:forecast", BERLIN, 1)}, "envelope"),
        ({"toolKey": KEY, "arguments": nested("mcp__gate__weather:forecast", BERLIN, 1)}, "envelope"),
        ({"toolKey": KEY, "arguments": nested("tool_execute", nested(KEY, BERLIN, 1), 1)}, "envelope"),
        (nested("tool_execute", nested(KEY, BERLIN, 1), 2), "envelope"),
        ({"toolKey": KEY, "arguments": {"arguments": {"arguments": BERLIN}}}, "envelope"),
        ({"toolKey": KEY, "arguments": json.dumps(nested(KEY, nested(KEY, BERLIN, 1), 1))}, "json_text+envelope"),
    ],
)
async def test_one_meaning_is_carried_out_and_the_row_says_how_it_was_read(
    gateway: Shop, given: dict[str, Any], read_as: str | None
) -> None:
    result = await execute(gateway, given)
    assert result["structuredContent"]["result"] == {"tag": "weather", "name": "forecast", "arguments": BERLIN}
    row = (await gateway.rows())[-1]
    assert (row["toolKey"], row["serverId"], row["outcome"]) == (KEY, "weather", "ok")
    assert row.get("readAs") == read_as


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ({}, "no_arguments"),
        ({"arguments": None}, "no_arguments"),
        ({"arguments": ""}, "json_text"),
        ({"arguments": " null "}, "json_text"),
        ({"arguments": '"null"'}, "json_text"),
    ],
)
async def test_arguments_that_are_left_out_are_none(gateway: Shop, given: dict[str, Any], read_as: str) -> None:
    result = await execute(gateway, {"toolKey": "weather:note", **given})
    assert result["structuredContent"]["result"]["arguments"] == {}
    assert (await gateway.rows())[-1]["readAs"] == read_as


@pytest.mark.parametrize(
    ("inside", "read"),
    [
        ({"toolKey": "weather:dotted.name", "arguments": {"x": 7}}, "envelope"),
        ({"toolKey": "weather__dotted.name", "arguments": '{"x": 7}'}, "json_text+envelope"),
        ({"toolKey": "dotted.name", "x": 7}, "beside+envelope"),
        (nested("weather:dotted.name", {"x": 7}, MAX_LEVELS), "envelope"),
        ({"arguments": {"x": 7}}, "envelope"),
        ({"arguments": {"toolKey": "dotted.name", "arguments": {"x": 7}}}, "envelope"),
    ],
)
async def test_a_repeated_call_is_unwrapped_although_all_its_parameters_are_optional(
    gateway: Shop, inside: dict[str, Any], read: str
) -> None:
    result = await execute(gateway, {"toolKey": "weather:dotted.name", "arguments": inside})
    assert result["structuredContent"]["result"]["arguments"] == {"x": 7}
    assert (await gateway.rows())[-1]["readAs"] == read
    inside = {"toolKey": "weather:dotted.name", "arguments": {"x": "seven"}}
    code, message = await refusal(gateway, {"toolKey": "weather:dotted.name", "arguments": inside})
    assert code == "invalid_arguments"
    assert "repeats the whole call" in message


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 50])
@pytest.mark.parametrize("tool", ["weather:note", "weather:dotted.name"])
async def test_a_call_that_is_repeated_too_often_is_refused(gateway: Shop, tool: str, levels: int) -> None:
    code, message = await refusal(gateway, {"toolKey": tool, "arguments": nested(tool, {"x": 7}, levels)})
    assert code == "invalid_arguments"
    assert "repeats the whole call" in message
    assert "Give only the tool's own arguments" in message


@pytest.mark.parametrize("sent", [{"arguments": {"x": "seven"}}, {"arguments": [1]}, {"arguments": "{"}])
async def test_arguments_inside_arguments_that_do_not_fit_are_refused(gateway: Shop, sent: dict[str, Any]) -> None:
    code, message = await refusal(gateway, {"toolKey": "weather:dotted.name", "arguments": sent})
    assert code == "invalid_arguments"
    assert "Give only the tool's own arguments" in message


@pytest.mark.parametrize("tool", ["weather:note", "weather:dotted.name", KEY])
@pytest.mark.parametrize("other", ["shop:paint", "weather:erase", "attic:secret", "nowhere:tool", "x" * 10_000])
@pytest.mark.parametrize("levels", [1, 2])
async def test_a_call_that_names_two_tools_is_refused_and_both_are_named(
    gateway: Shop, tool: str, other: str, levels: int
) -> None:
    inside = nested(tool, {"toolKey": other, "arguments": {"object": "door"}}, levels - 1)
    code, message = await refusal(gateway, {"toolKey": tool, "arguments": inside})
    assert code == "invalid_arguments"
    assert message == (
        f"The call is for `{tool}`, and its `arguments` name another tool, `{clipped(other)}`; nothing was sent. Call "
        "tool_execute once for each tool, with only that tool's own arguments in `arguments`."
    )
    assert gateway.ran() == []


def clipped(key: str) -> str:
    return key if len(key) <= 200 else f"{key[:200]}..."


@pytest.mark.parametrize(
    ("tool", "sent"),
    [
        ("weather:note", {"toolKey": 7, "a": 1}),  # names no tool
        ("weather:note", {"arguments": {"a": 1}, "b": 2}),  # no call
        ("weather:echo", {"toolKey": "weather:erase", "arguments": {"a": 1}}),
        ("weather:relay", {"toolKey": "shop:paint", "arguments": {"a": 1}}),  # it declares both, by a reference
        ("weather:relay", nested("weather:relay", {"a": 1}, 2)),
        ("weather:echo", {"toolKey": "weather:echo", "arguments": {"arguments": 1}}),  # it declares `arguments`
        ("weather:echo", {"arguments": {"a": 1}}),
    ],
)
async def test_arguments_that_fit_as_they_are_stay_as_they_are(gateway: Shop, tool: str, sent: dict[str, Any]) -> None:
    result = await execute(gateway, {"toolKey": tool, "arguments": sent})
    assert result["structuredContent"]["result"]["arguments"] == sent
    assert "readAs" not in (await gateway.rows())[-1]


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"toolKey": KEY, "arguments": {"toolKey": KEY, "arguments": {"town": 1}}}, "invalid_arguments", "city"),
        ({"toolKey": KEY, "arguments": {"toolKey": KEY, "arguments": "{"}}, "invalid_arguments", "city"),
        ({"toolKey": KEY, "town": "Berlin"}, "invalid_arguments", "no parameter `town`"),
        ({"toolKey": "weather:note", "params": {"a": 1}}, "invalid_arguments", "inside `arguments`"),
        ({"toolKey": KEY, "arguments": BERLIN, "days": 1}, "invalid_arguments", "no parameter `days`"),
        ({"toolKey": "wait"}, "unknown_tool", "It can mean `weather:wait`, `shop:wait`: call again with the full key."),
        ({"toolKey": "forcast", "arguments": BERLIN}, "unknown_tool", f"The nearest keys: `{KEY}`"),
        ({"toolKey": "wether:forecast", "arguments": BERLIN}, "unknown_tool", f"The nearest keys: `{KEY}`"),
        ({"toolKey": "weather:forcast", "arguments": BERLIN}, "unknown_tool", f"The nearest keys: `{KEY}`"),
        (
            {"toolKey": "tool_discovery", "arguments": {"query": ["x"]}},
            "unknown_tool",
            "called by itself, with `query`; tool_execute runs the tools that it finds.",
        ),
        ({"toolKey": "mcp__pointsman__tool_discovery"}, "unknown_tool", "called by itself"),
        ({"toolKey": "tool_execute"}, "unknown_tool", "runs other tools"),
        ({"toolKey": "x" * 100_000}, "unknown_tool", "Call tool_discovery"),
    ],
)
async def test_everything_else_is_refused_with_the_next_step(
    gateway: Shop, given: dict[str, Any], code: str, said: str
) -> None:
    assert (await refusal(gateway, given))[0] == code
    assert said in (await refusal(gateway, given))[1]
    row = (await gateway.rows())[-1]
    assert row["code"] == code
    assert gateway.ran() == []


@pytest.mark.parametrize(
    "key", ["erase", "weather__erase", "weather:erase", "shop.erase", "secret", "attic__secret", "mcp__attic__secret"]
)
async def test_no_form_reaches_or_names_a_tool_that_the_caller_may_not_use(gateway: Shop, key: str) -> None:
    for given in ({"toolKey": key}, {"arguments": {"toolKey": key, "arguments": {}}}):
        code, message = await refusal(gateway, given)
        assert code == "unknown_tool"
        assert not {"weather:erase", "shop:erase", "attic:secret"} & (set(message.split("`")) - {key})
    assert gateway.ran() == []


async def test_a_bare_name_stays_with_its_owner_while_that_is_down(tmp_path: Path) -> None:
    owner = from_file(tmp_path / "owner.json", "owner", {"tools": [{"name": "pay"}, {"name": "quit"}]})
    rival_file = tmp_path / "rival.json"
    servers = {"owner": owner, "rival": from_file(rival_file, "rival", {"tools": [{"name": "announce"}]})}
    async with gateway_process(tmp_path, {"servers": servers}) as process, httpx2.AsyncClient(timeout=20) as http:
        gateway = Shop(process, http, tmp_path / "trace")
        result = await execute(gateway, {"toolKey": "pay"})
        assert result["structuredContent"]["result"]["tag"] == "owner"
        (tmp_path / "owner.json").unlink()  # it cannot list its tools any more, and the next question ends it
        await _until_owner_is_down(gateway)
        code, message = await refusal(gateway, {"toolKey": "pay"})
        assert (code, "`owner`" in message) == ("server_unavailable", True)
        rival_file.write_text(json.dumps({"tools": [{"name": "announce"}, {"name": "pay"}]}))
        await execute(gateway, {"toolKey": "rival:announce"})
        code, message = await refusal(gateway, {"toolKey": "pay"})
        assert code == "unknown_tool"
        assert "`owner:pay`, `rival:pay`" in message


async def test_a_bare_name_is_not_carried_out_while_a_running_server_has_not_listed_its_tools(tmp_path: Path) -> None:
    servers = {
        "shop": workshop(tmp_path / "trace"),
        "mute": from_file(tmp_path / "mute.json", "mute", {"tools": "not a list"}),
        "gone": {"command": "no-such-program-anywhere"},  # has no names to keep
    }
    async with gateway_process(tmp_path, {"servers": servers}) as process, httpx2.AsyncClient(timeout=20) as http:
        gateway = Shop(process, http, tmp_path / "trace")
        code, message = await refusal(gateway, {"toolKey": "paint", "arguments": {"object": "door"}})
        assert code == "unknown_tool"
        assert "`shop:paint` or a tool of `mute`, of which" in message
        assert gateway.ran() == []
        assert not (await execute(gateway, {"toolKey": "shop__paint", "arguments": {"object": "door"}})).get("isError")


async def _until_owner_is_down(gateway: Shop) -> None:
    async with asyncio.timeout(LONG_S):
        while True:
            health = await gateway.http.get(gateway.gateway.base_url + "/health", headers=gateway.gateway.headers)
            if health.json()["servers"]["owner"]["state"] != "running":
                return
            await gateway.call("tool_discovery", {"query": ["pay"]})


HANDLE = "5f3a9c21." + "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "given",
    [
        {"toolKey": "pointsman:result", "arguments": {"handle": HANDLE}},
        {"toolKey": " `pointsman:result`", "arguments": {"handle": f" {HANDLE} ", "offset": 5}},
        {"toolKey": "mcp__pointsman__pointsman:result", "arguments": {"handle": HANDLE}},
        {"toolKey": "result", "arguments": {"handle": HANDLE}},
        {"toolKey": "pointsman:result", "handle": HANDLE},
        {"toolKey": "pointsman:result", "arguments": json.dumps({"handle": HANDLE})},
        {"arguments": {"toolKey": "pointsman:result", "arguments": {"handle": HANDLE}}},
        {"toolKey": "pointsman:result", "arguments": {"toolKey": "result", "arguments": {"handle": HANDLE}}},
    ],
)
def test_the_handle_of_a_stored_result_is_found_in_every_form(given: dict[str, Any]) -> None:
    assert result_handle(given) == HANDLE


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"toolKey": "shop:result", "arguments": {"handle": HANDLE}},
        {"toolKey": "result", "arguments": {"handle": "a word"}},
        {"toolKey": "pointsman:result", "arguments": {"handle": 5}},
        {"toolKey": "pointsman:result", "arguments": "not JSON"},
        {"toolKey": 5, "arguments": {"handle": HANDLE}},
    ],
)
def test_other_calls_have_no_handle_of_a_stored_result(given: dict[str, Any]) -> None:
    assert result_handle(given) is None
