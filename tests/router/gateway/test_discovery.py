"""`tool_discovery` of a whole gateway: what it shows and leaves out, and that it does not wait for a silent server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx2
import pytest

from pointsman.router.audit.query import Filter, read_calls
from pointsman.router.gateway.meta_tools import TOOLS
from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, from_file, workshop

NEVER_ANSWERS = {"command": sys.executable, "args": ["-S", "-c", "import sys; sys.stdin.read()"]}


async def test_a_result_has_all_that_a_model_needs_to_call_the_tool(shop: Shop) -> None:
    answer = (await shop.call("tool_discovery", {"query": ["paint something"], "maxResults": 1})).json()["result"]
    [best] = answer["structuredContent"]["results"]
    assert best["toolKey"] == "shop:paint"
    assert (best["toolName"], best["serverName"]) == ("paint", "Workshop")
    assert best["inputSchema"]["required"] == ["object"]
    assert "annotations" not in best  # that it may destroy is the protocol's default
    assert 0.2 < best["relevance"] <= 1
    assert "`gone`" in answer["structuredContent"]["notice"]
    assert answer["content"][0]["text"] == compact(answer["structuredContent"])


async def test_what_may_not_be_used_is_not_found(shop: Shop) -> None:
    answer = (await shop.call("tool_discovery", {"query": ["erase everything"], "maxResults": 100})).json()["result"]
    keys = {hit["toolKey"] for hit in answer["structuredContent"]["results"]}
    assert "shop:erase" not in keys
    assert not any(key.startswith("attic:") for key in keys)
    assert "attic" not in answer["structuredContent"]["notice"]


async def test_nonsense_gets_low_relevance_or_nothing_and_says_so(shop: Shop) -> None:
    answer = (await shop.call("tool_discovery", {"query": ["zyxwv qqqq flurb"]})).json()["result"]
    assert all(hit["relevance"] < 0.2 for hit in answer["structuredContent"]["results"])
    assert answer["structuredContent"]["notice"]


async def test_a_pasted_log_is_answered(shop: Shop) -> None:
    log = "Paint an object in a colour. " + "2026-01-01T00:00:00 ERROR cannot reach 10.0.0.1 " * 450
    answer = (await shop.call("tool_discovery", {"query": [log], "maxResults": 3})).json()["result"][
        "structuredContent"
    ]
    assert "shop:paint" in {hit["toolKey"] for hit in answer["results"]}
    assert f"query[0] ({len(log)})" in answer["notice"]


@pytest.mark.parametrize("query", ["покрасить дверь", "ドアを塗る", "给门刷漆", "طلاء الباب"])
async def test_a_request_in_another_script_is_told_to_be_one(shop: Shop, query: str) -> None:
    for queries in ([query], ["paint a door", query]):
        answer = (await shop.call("tool_discovery", {"query": queries})).json()["result"]["structuredContent"]
        assert "in another script" in answer["notice"]
        assert "Ask again in English." in answer["notice"]
    assert "query[1] is in another script" in answer["notice"]


async def test_several_queries_have_three_results_each_and_the_best_of_each_first(tmp_path: Path) -> None:
    nouns = ("invoice", "branch", "mailbox", "weather")
    names = [f"{verb}_{noun}" for noun in nouns for verb in ("create", "read", "update", "delete")]
    tools = [{"name": n, "description": n.replace("_", " "), "inputSchema": {}} for n in names]
    config = {"servers": {"all": from_file(tmp_path / "lists.json", "all", {"tools": tools})}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        queries = [f"read the {noun}" for noun in nouns]
        answer = await Shop(gateway, http, tmp_path / "trace").call("tool_discovery", {"query": queries})
    results = answer.json()["result"]["structuredContent"]["results"]
    assert {hit["toolName"] for hit in results[:4]} == {f"read_{noun}" for noun in nouns}
    for index, noun in enumerate(nouns):
        served = [hit for hit in results if index in hit["intents"]]
        assert len(served) >= 3
        assert next(hit["toolName"] for hit in served if hit["intents"][0] == index) == f"read_{noun}"  # fits it best


async def test_a_string_with_a_json_list_is_searched_and_recorded_as_the_list(shop: Shop) -> None:
    given = {"query": '["paint something", "fold a sheet"]', "maxResults": "2"}
    answer = (await shop.call("tool_discovery", given)).json()["result"]["structuredContent"]
    assert len(answer["results"]) == 2
    assert answer["results"][0]["intents"] == [0]
    rows = [intent for intent, _ in read_calls(shop.gateway.state_dir, Filter()) if intent.kind == "discovery"]
    assert rows[-1].queries == ["paint something", "fold a sheet"]


async def test_a_tool_asked_for_by_name_comes_first(tmp_path: Path) -> None:
    names = ("documents_list_documents", "documents_list_collections", "read_file", "read_text_file")
    prose = "List the documents of all collections; read a text file, read any file, list documents_list_collections"
    lists = {"tools": [{"name": n, "description": prose * ("file" not in n), "inputSchema": {}} for n in names]}
    config = {"servers": {"docs": from_file(tmp_path / "lists.json", "docs", lists)}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        for name in names:
            camel = "".join(map(str.capitalize, name.split("_")))
            for query in ([name], [camel], [f"docs:{name}"], [f"docs__{name}"], ["list the collections", name]):
                answer = (await shop.call("tool_discovery", {"query": query})).json()["result"]
                best = answer["structuredContent"]["results"][0]
                assert (best["toolName"], best["explanation"]) == (name, "exact name")
                assert best["relevance"] >= 0.95


async def test_a_server_that_hangs_at_start_delays_nobody(tmp_path: Path) -> None:
    """If anybody waited for it, it would be for an hour."""
    asleep = NEVER_ANSWERS | {"timeouts": {"connect_s": 3600, "list_s": 3600}}
    config = {"servers": {"shop": workshop(tmp_path / "trace"), "asleep": asleep}}
    async with (
        gateway_process(tmp_path, config, without=["asleep"]) as gateway,
        httpx2.AsyncClient(timeout=60) as http,
    ):
        shop = Shop(gateway, http, tmp_path / "trace")
        answer = (await shop.call("tool_discovery", {"query": ["paint something"]})).json()["result"]
        assert answer["structuredContent"]["results"][0]["toolKey"] == "shop:paint"
        assert "`asleep`" in answer["structuredContent"]["notice"]


async def test_a_project_can_switch_discovery_off(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, "unassigned": {"optimization": None}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        answer = (await shop.call("tool_discovery", {"query": ["paint"]})).json()["result"]
        assert answer["structuredContent"]["results"] == []
        assert "optimization" in answer["structuredContent"]["notice"]
        assert not (await shop.execute("shop:paint", {"object": "door"})).get("isError")


async def test_embeddings_can_be_switched_off_and_the_audit_says_which_way_was_searched(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, "search": {"embeddings": False}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        answer = (await shop.call("tool_discovery", {"query": ["paint something"]})).json()["result"]
        assert answer["structuredContent"]["results"][0]["toolKey"] == "shop:paint"
        [row] = await shop.rows()
    assert row["provider"] == "bm25"


def compact(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


async def test_a_project_can_have_its_servers_named_in_the_description(tmp_path: Path) -> None:
    named = workshop(tmp_path / "trace", projects=["red"], name="Workshop", tool_permissions={"erase": False})
    config = {
        "servers": {"shop": named, "asleep": NEVER_ANSWERS | {"projects": ["red"]}, "other": workshop(tmp_path / "t")},
        "projects": {"red": {"describe_catalog": True}},
    }
    async with (
        gateway_process(tmp_path, config, without=["asleep"]) as gateway,
        httpx2.AsyncClient(timeout=20) as http,
    ):
        shop = Shop(gateway, http, tmp_path / "trace")
        red = [await descriptions(shop, {"X-Pointsman-Project": "red"}) for _ in range(3)]
        plain = await descriptions(shop, {})
    assert red[0] == red[1] == red[2]
    assert plain == [tool["description"] for tool in TOOLS]
    overview = red[0][0].removeprefix(plain[0])
    assert overview == " Servers here: Workshop (paint, colour, wait, hang, break, refuse, crash); asleep."
    assert red[0][1:] == plain[1:]


async def descriptions(shop: Shop, headers: dict[str, str]) -> list[str]:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test-client", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope}}
    routing = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    answer = (await shop.post(message, routing | headers)).json()["result"]
    return [tool["description"] for tool in answer["tools"]]
