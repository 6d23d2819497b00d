"""Large results in every form that JSON allows: whole or as a preview with slices, both eras read what was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess
from tests.router.gateway.large_results.test_large_results import read, storing_gateway
from tests.router.raw_client import ERAS, Era, Speaker, speaker

LONG = rb"line \u00e9 \ud83d\ude00 \\ \"q\" " + "\u00e4\u20ac\U0001f600\\n".encode() * 20_000
ROWS = b'{"rows" : [%b1.50E1, 2], "n": {"x\\u0079": "%b"}}' % (b'{"id": 7, "a\\u0062": null},' * 5_000, LONG)
TEXT = b'{"type":"text","text":"%b"}' % LONG
LINK = b'{"type":"\\u0072esource_link","uri":"note:\\/\\/x","name":"x"}'
DEEP = b'{"a":' * 300 + b'"%b"' % LONG + b"}" * 300
DEEPER = b'{"a":' * 600 + b'"%b"' % LONG + b"}" * 600
RESULTS = {
    "text": b'{"content":[%b]}' % TEXT,
    "texts": b'{"content" : [%b ,{"type":"text","text":"short"}, %b] }' % (TEXT, TEXT),
    "escaped keys": rb'{"c\u006fntent":[{"t\u0079pe":"te\u0078t","te\u0078t":"%b"}],"isErr\u006fr":true}' % LONG,
    "a link": b'{"content":[%b,%b],"_meta":{"a":1}}' % (TEXT, LINK),
    "repeated keys": b'{"content":[],"content":[{"type":"text","text":"no","text":"%b"}]}' % LONG,
    "structured": b'{"content":[],"structuredContent":%b}' % ROWS,
    "both": b'{"content":[%b],"structuredContent":%b,"isError":false}' % (TEXT, ROWS),
    "an error": b'{"isError":true,"content":[%b,{"type":"image","data":"%b","mimeType":"image/png"}]}'
    % (TEXT, b"A" * 50_000),
    "deep": b'{"content":[],"structuredContent":%b}' % DEEP,
    "deep blocks": b'{"content":[{"type":"text","text":"%b","_meta":%b}]}' % (LONG, DEEPER),
    "a deep link": b'{"content":[%b,{"type":"resource_link","uri":"note://y","_meta":%b}]}' % (TEXT, DEEPER),
    "no blocks": b'{"content":[null,5,[%b],"x",%b,{"type":["text"],"text":{"a":"%b"}}]}' % (TEXT, TEXT, LONG),
}


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with storing_gateway(tmp_path_factory.mktemp("gateway")) as process:
        yield process


async def call(client: Speaker, folder: Path, result: bytes, *, whole: bool) -> dict[str, Any]:
    file = folder / "answer.json"
    file.write_bytes(result)
    client.meta = {"pointsman/whole": True} if whole else {}
    return await client.call("tool_execute", {"toolKey": "notes:answer", "arguments": {"file": str(file)}})


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", RESULTS)
async def test_the_whole_result_is_what_was_sent(gateway: GatewayProcess, tmp_path: Path, era: Era, name: str) -> None:
    expected = json.loads(RESULTS[name])
    async with speaker(gateway, era) as client:
        got = await call(client, tmp_path, RESULTS[name], whole=True)
    assert got["content"] == expected["content"]
    assert got.get("isError") == expected.get("isError")
    if "structuredContent" in expected:
        assert got["structuredContent"] == {"result": expected["structuredContent"]}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", RESULTS)
async def test_slices_and_fields_are_what_was_sent(
    gateway: GatewayProcess, tmp_path: Path, era: Era, name: str
) -> None:
    expected = json.loads(RESULTS[name])
    texts = [block["text"] for block in expected["content"] if is_text(block)]
    async with speaker(gateway, era) as client:
        got = await call(client, tmp_path, RESULTS[name], whole=False)
        handle = got["structuredContent"]["handle"]
        slices, offset = "", 0
        while offset is not None:
            part = (await read(client, handle, offset=offset))["structuredContent"]
            slices, offset = slices + part["result"], part.get("nextOffset")
    if texts:
        assert slices == "\n".join(texts)
    else:
        assert json.loads(slices) == expected["structuredContent"]
    assert f"of {len(slices):,} characters" in got["structuredContent"]["result"]
    assert got.get("isError") == expected.get("isError")
    assert [block for block in got["content"] if not is_text(block)] == [
        block for block in expected["content"] if not is_text(block)
    ]


def is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_that_cannot_be_decoded_for_a_preview_stays_whole(
    gateway: GatewayProcess, tmp_path: Path, era: Era
) -> None:
    async with speaker(gateway, era) as client:
        for part in (b'"content":[%b,{"n":1e999}]', b'"content":[%b],"structuredContent":{"n":1e999,"t":"%b"}'):
            result = b"{%b}" % (part % ((TEXT,) if part.count(b"%b") == 1 else (TEXT, LONG)))
            got = await call(client, tmp_path, result, whole=False)
            assert got["content"][0] == json.loads(TEXT)
