"""Large content is not decoded on its way from the server to the client, and nothing is different for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from pointsman.core import wire
from pointsman.core.model import Caller, Json
from pointsman.router.downstream.talk.decoding import decode
from pointsman.router.gateway.results import ResourceLinks, open_blocks, size_undecoded
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.gateway.large_results.test_large_results import SECRETS, answer, config
from tests.router.raw_client import ERAS, Era, speaker

CALLER = Caller("laptop", None)
LONG = 'é\n"quoted" \\u ' * 10_000
TEXT = {"type": "text", "text": LONG}
LINK = {"type": "resource_link", "uri": "note://x", "name": "x"}
ROWS = {"rows": [{"id": 2**70, "price": 0.1, "name": None}] * 2_000}


def received(result: Json) -> Json:
    """A result as it comes from a server."""
    found: Json = decode(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())["result"]
    return found


def sent(result: Json) -> Any:
    """A result as a client reads it."""
    return json.loads(wire.encode(result))


@pytest.mark.parametrize(
    "linked",
    [
        LINK,
        {"type": "resource", "resource": {"uri": "note://x", "text": LONG, "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "note://x", "text": "short"}, "annotations": {"long": LONG}},
    ],
)
def test_links_in_large_content_are_remembered_and_unchanged(linked: Json) -> None:
    links, result = ResourceLinks(), {"content": [TEXT, linked, 5, None, "x", [LONG]]}
    shown = links.shown(CALLER, "notes", received(result))
    assert sent(shown) == result
    assert links.server_of(CALLER, "note://x") == "notes"


@pytest.mark.parametrize("long", [LONG, "short"])
def test_links_to_pages_in_large_content_name_their_server(long: str) -> None:
    page = {"type": "resource", "resource": {"uri": "ui://page", "text": long, "mimeType": "text/html"}}
    shown = sent(ResourceLinks().shown(CALLER, "notes", received({"content": [TEXT, page]})))
    uri = shown["content"][1]["resource"].pop("uri")
    assert uri != "ui://page"
    assert "notes" in uri
    del page["resource"]["uri"]  # type: ignore[attr-defined]
    assert shown == {"content": [TEXT, page]}


def test_large_content_without_links_is_not_decoded() -> None:
    result = received({"content": [TEXT, {"type": ["resource"]}, {"type": None}, {}]})
    assert type(ResourceLinks().shown(CALLER, "notes", result)["content"]) is Raw


@pytest.mark.parametrize(
    "result",
    [
        {"content": [TEXT], "structuredContent": ROWS, "isError": True, "_meta": {"a": "é"}},
        {"structuredContent": ROWS},
        {"content": [], "structuredContent": ROWS},
    ],
)
def test_the_size_is_that_of_the_encoded_result(result: Json) -> None:
    undecoded = received(result)
    assert size_undecoded(undecoded) == len(wire.encode(undecoded))


@pytest.mark.parametrize("kind", ["text", "resource_link"])
def test_only_the_outer_members_of_large_blocks_are_opened(kind: str) -> None:
    block = {"type": kind, "uri": "note://x", "text": "short", "_meta": {"a": {"b": {"c": LONG}}}}
    (opened,) = open_blocks(Raw(json.dumps([block]).encode()))
    assert (opened["type"], opened["text"]) == (kind, "short")
    assert type(opened["_meta"]["a"]) is Raw
    assert sent(opened) == block


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    async with gateway_process(folder, config(result_preview_chars=0), token=SECRETS["laptop"]) as process:
        yield process


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("times", [1, 20])
async def test_a_large_result_arrives_as_it_was_sent(
    gateway: GatewayProcess, tmp_path: Path, era: Era, times: int
) -> None:
    result = {"content": [TEXT, LINK] * times, "structuredContent": ROWS, "isError": False, "vendor": [1]}
    async with speaker(gateway, era) as client:
        got = await answer(client, tmp_path, result)
    assert got["content"] == result["content"]
    assert got["structuredContent"] == {"result": ROWS}
    assert (got["isError"], got["vendor"]) == (False, [1])
    rows = await audit_rows(gateway.state_dir)
    assert max(row["bytes"] or 0 for row in rows) > len(json.dumps(ROWS))


@pytest.mark.parametrize("era", ERAS)
async def test_a_flat_tool_keeps_its_structured_content(gateway: GatewayProcess, tmp_path: Path, era: Era) -> None:
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"content": [TEXT], "structuredContent": ROWS}))
    async with speaker(gateway, era, project="flat") as client:
        got = await client.call("notes-flat__answer", {"file": str(file)})
    assert (got["content"], got["structuredContent"]) == ([TEXT], ROWS)
