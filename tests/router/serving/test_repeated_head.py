"""What is taken for a message with the same head means what the parser says that it means."""

from __future__ import annotations

from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.router.serving.repeated_head import RepeatedHead
from tests.router.serving.parsed_head import Parsed

BODY = b'{"text": "hello"}'
FIELDS = b"Content-Type: application/json\r\nContent-Length: %d\r\nX: y\r\n\r\n" % len(BODY)
REQUEST, RESPONSE = b"POST /mcp HTTP/1.1\r\n" + FIELDS + BODY, b"HTTP/1.1 200 OK\r\n" + FIELDS + BODY
LENGTHS = st.one_of(
    st.integers(0, 30).map(lambda number: b"%d" % number),
    st.sampled_from([b"017", b"+17", b"-17", b" 17", b"17 ", b"0x11", b"1,7", b"", b"\xb2", b"17\r\nX: y", b"9" * 30]),
)


@pytest.mark.parametrize(
    ("parser_type", "message"), [(httptools.HttpRequestParser, REQUEST), (httptools.HttpResponseParser, RESPONSE)]
)
@given(data=st.data())
def test_what_is_taken_for_the_same_head_parses_to_it(parser_type: Any, message: bytes, data: st.DataObject) -> None:
    known = Parsed(parser_type, message)
    repeated = RepeatedHead.of(message, dict(known.headers))
    assert repeated is not None
    length = data.draw(LENGTHS)
    body = data.draw(st.one_of(st.binary(max_size=20), st.just(BODY), st.just(message)))
    at, inserted = data.draw(st.integers(0, len(message))), data.draw(st.binary(max_size=3))
    piece = repeated.before + length + repeated.after + body
    piece = piece[:at] + inserted + piece[at:]
    found = repeated.body_in(piece)
    if found is None:
        return
    parsed = Parsed(parser_type, piece)
    assert (parsed.complete, parsed.body) == (1, found)
    assert (parsed.urls, parsed.status) == (known.urls, known.status)
    assert dict(parsed.headers) == dict(known.headers) | {b"content-length": length}


@pytest.mark.parametrize("message", [REQUEST, RESPONSE])
def test_a_message_that_differs_in_its_length_alone_has_the_same_head(message: bytes) -> None:
    repeated = RepeatedHead.of(message, {b"content-type": b"", b"content-length": b"17", b"x": b"y"})
    assert repeated is not None
    for body in (b"", b"{}", b"x" * 12_345):
        assert repeated.body_in(message.replace(b"17", b"%d" % len(body))[: -len(BODY)] + body) == body
