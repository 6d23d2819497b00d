"""A large response in parts is, byte for byte, the response that is encoded whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from pointsman.core.wire import encode
from pointsman.router.front.http.body_parts import in_parts
from pointsman.router.serving.in_flight import LARGE_BYTES
from tests.router.front.raw_http import modern_call, request
from tests.router.front.served_front import serving

LARGE = Raw(encode([{"type": "text", "text": 'line "1" é\n\0' * LARGE_BYTES}]))
OTHER = Raw(encode({"lines": ["x" * LARGE_BYTES], "more": None}))
SMALL = Raw(b'[{"type":"text","text":"short"}]')


@pytest.mark.parametrize(
    ("result", "copied"),
    [
        ({"content": LARGE, "isError": False}, 1),
        ({"content": LARGE, "structuredContent": {"result": OTHER}, "_meta": {"note": "a \0 b"}}, 2),
        ({"structuredContent": {"result": OTHER}, "content": SMALL}, 1),
        ({"structuredContent": OTHER, "content": LARGE, "resultType": "complete"}, 2),
    ],
)
def test_parts_make_the_same_response(result: dict[str, Any], copied: int) -> None:
    body = in_parts("id-\u00e4", result)
    assert body is not None
    expected = encode({"jsonrpc": "2.0", "id": "id-\u00e4", "result": result})
    assert bytes(body) == expected
    assert len(body) == len(expected)
    assert sum(isinstance(part, memoryview) for part in body.parts) == copied


@pytest.mark.parametrize(
    "result",
    [
        {"content": SMALL},
        {"content": [{"type": "text", "text": "x" * (LARGE_BYTES + 1)}]},
        {},
        {"content": LARGE, "odd": Raw(b'"\0"')},  # which no check lets pass: there would be one mark too many
    ],
)
def test_other_responses_are_encoded_whole(result: dict[str, Any]) -> None:
    assert in_parts(1, result) is None


async def test_a_client_gets_all_parts_and_the_connection_goes_on() -> None:
    async with serving() as served:
        connection = await served.connect()
        for size, undecoded, told in ((3_000_000, True, False), (10, False, False), (3_000_000, True, True)):
            body, headers = modern_call("huge", {"bytes": size, "undecoded": undecoded, "told": told})
            connection.send(request(served.port, body, headers=headers))
            answer = await connection.answer()
            message = answer.messages[-1] if told else answer.json
            assert message["result"]["content"] == [{"type": "text", "text": "h" * size}]
        await connection.close()
