"""Half a surrogate pair costs one character, not the message."""

from __future__ import annotations

import json

import pytest

from pointsman.core import wire
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES, decode, decode_off_loop


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
    assert await decode_off_loop(data) == {"jsonrpc": "2.0", "id": 1, "result": {"rows": rows, "text": "\ufffd"}}
