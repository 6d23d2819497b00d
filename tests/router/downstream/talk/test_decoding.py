"""Half a surrogate pair costs one character, not the message; large content stays as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from pointsman.core import wire
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES, RAW_BYTES, decode, decode_off_loop


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb'"a\ud83db"', "a\ufffdb"),
        (rb'"a\uDE00b"', "a\ufffdb"),
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\ud83d\n"', "\ufffd\n"),
        (rb'"\\ud83d \ud83d"', "\\ud83d \ufffd"),
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'{"\udc00": [1, "\ud83d\ude00"]}', {"\ufffd": [1, "\U0001f600"]}),
        (b'"a\xed\xa0\xbdb \xed\x95\x9c"', "a\ufffdb \ud55c"),
    ],
)
def test_half_a_pair_becomes_the_replacement_character_and_nothing_else_changes(sent: bytes, read: object) -> None:
    with pytest.raises(wire.InvalidJsonError):
        wire.decode(sent)
    assert decode(sent) == read
    assert decode(bytearray(sent)) == read


@pytest.mark.parametrize(
    "broken", [b"", b"{", rb'"\ud83', rb'{"a": "\ud83d"', b'"\xff"', b"[" * 100_000, b'"\xed\xa0"']
)
def test_what_is_no_json_stays_none(broken: bytes) -> None:
    with pytest.raises(wire.InvalidJsonError):
        decode(broken)


async def test_large_messages_are_mended_as_well() -> None:
    rows = ["x" * 1000] * 1500
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"rows": rows, "text": "\ud83d"}}).encode()
    assert len(data) > OFF_LOOP_BYTES
    for form in (data, bytearray(data), memoryview(data)):
        message = await decode_off_loop(form)
        assert message == {"jsonrpc": "2.0", "id": 1, "result": {"rows": rows, "text": "\ufffd"}}


def answer(result: object, **more: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result, **more}, ensure_ascii=False).encode()


LONG = "caché \\ud83d " * RAW_BYTES
BLOCKS = [{"type": "text", "text": LONG}]


@pytest.mark.parametrize("size", [1, 200])
async def test_large_content_is_passed_on_as_the_bytes_that_came(size: int) -> None:
    rows = {"rows": [{"id": 10**30, "price": 1.50, "name": "é"}] * 2_000}
    data = answer({"content": BLOCKS * size, "structuredContent": rows, "isError": False, "_meta": {"a": 1}})
    message = await decode_off_loop(data)
    result = message["result"]
    assert message["id"] == 7
    assert bytes(result["content"]) in data
    assert bytes(result["structuredContent"]) in data
    assert (result["isError"], result["_meta"]) == (False, {"a": 1})
    assert wire.encode(result["structuredContent"]).count(b"%d" % 10**30) == 2_000


@pytest.mark.parametrize(
    "data",
    [
        answer({"content": BLOCKS}, method="sampling/createMessage"),
        answer({"tools": BLOCKS}),
        answer({"content": {"text": LONG}}),
        answer({"structuredContent": [LONG]}),
        answer({"content": BLOCKS, "_meta": {"long": LONG}}),
        answer([LONG]),
        json.dumps({"id": 7, "error": {"code": 1, "message": LONG}}).encode(),
        json.dumps([{"id": 7, "result": {"content": BLOCKS}}]).encode(),
    ],
)
async def test_every_other_large_message_is_decoded(data: bytes) -> None:
    for form in (data, bytearray(data), memoryview(data)):
        assert decode(form) == json.loads(data)
        assert await decode_off_loop(form) == json.loads(data)


async def test_half_a_pair_in_large_content_is_repaired() -> None:
    data = json.dumps({"id": 7, "result": {"content": [{"type": "text", "text": LONG + "\ud83d"}]}}).encode()
    for message in (decode(data), decode(memoryview(data)), await decode_off_loop(memoryview(data))):
        assert message["result"]["content"][0]["text"] == LONG + "\ufffd"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'[{"type": "text", "text": "%b\xff"}]', "not UTF-8"),
        (b'[{"type": "text", "text": "%b", "\xff": 1}]', "a name that is not UTF-8"),
        (b'[{"type": "text", "text": "%b", "size": NaN}]', "NaN"),
        (b'[{"type": "text", "text": "%b",}]', "a comma too many"),
        (b'[{"type": "text", "text": "%b\n"}]', "a line end in a string"),
        (b'[{"type": "text", "text": "%b\\x"}]', "no such escape"),
        (b'[{"type": "text", "text": "%b"}, ' + b"[" * 2_000 + b"]" * 2_000 + b"]", "too deep"),
        (b'[{"type": "text", "text": "%b"}', "cut off"),
    ],
)
async def test_undecoded_content_is_checked(content: bytes, why: str) -> None:
    data = b'{"jsonrpc":"2.0","id":7,"result":{"content":%b}}' % (content.replace(b"%b", b"x" * RAW_BYTES))
    for form in (data, memoryview(data)):
        with pytest.raises(wire.InvalidJsonError):
            decode(form)
        with pytest.raises(wire.InvalidJsonError):
            await decode_off_loop(form)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_undecoded_content_is_one_line(line_end: str) -> None:
    result: Any = {"content": BLOCKS, "structuredContent": {"rows": [1] * RAW_BYTES}}
    data = json.dumps({"id": 7, "result": result}, indent=1).replace("\n", line_end).encode()
    message = decode(data)
    assert type(message["result"]["content"]) is Raw
    sent = wire.encode(message)
    assert b"\n" not in sent
    assert b"\r" not in sent
    assert json.loads(sent) == {"id": 7, "result": result}


def test_a_small_result_is_decoded() -> None:
    assert decode(answer({"content": [{"type": "text", "text": "x"}]}))["result"]["content"][0]["text"] == "x"
