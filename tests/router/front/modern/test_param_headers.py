"""`Mcp-Param-*`: arguments that a tool wants to see in headers, too, must be the same there."""

from __future__ import annotations

import pytest

from tests.router.front.raw_http import Json, modern_call
from tests.router.front.served_front import Served, serving
from tests.router.front.small_gateway import SmallGateway

SCHEMA: Json = {
    "type": "object",
    "properties": {"text": {"type": "string", "x-mcp-header": "Text"}, "count": {"type": "integer"}},
}


async def sent(served: Served, arguments: Json, *mirrored: tuple[str, str]) -> tuple[int, int | None]:
    body, headers = modern_call("echo", arguments)
    answer = await served.send(body, headers=[*headers, *mirrored])
    return answer.status, answer.code


@pytest.mark.parametrize(
    ("arguments", "mirrored"),
    [
        ({"text": "a"}, [("Mcp-Param-Text", "a")]),
        ({"text": "ä"}, [("Mcp-Param-Text", "=?base64?w6Q=?=")]),
        ({"count": 1}, []),
        ({}, []),
    ],
)
async def test_what_agrees_is_carried(arguments: Json, mirrored: list[tuple[str, str]]) -> None:
    async with serving(SmallGateway(schemas={"echo": SCHEMA})) as served:
        assert await sent(served, arguments, *mirrored) == (200, None)


@pytest.mark.parametrize(
    ("arguments", "mirrored"),
    [
        ({"text": "a"}, [("Mcp-Param-Text", "b")]),
        ({"text": "a"}, []),
        ({}, [("Mcp-Param-Text", "a")]),
        ({"text": "a"}, [("Mcp-Param-Text", "=?base64?!?=")]),
        ({"text": "a"}, [("Mcp-Param-Text", "a"), ("mcp-param-text", "a")]),
    ],
)
async def test_what_differs_runs_nothing(arguments: Json, mirrored: list[tuple[str, str]]) -> None:
    async with serving(SmallGateway(schemas={"echo": SCHEMA})) as served:
        assert await sent(served, arguments, *mirrored) == (400, -32020)
        assert served.gateway.requests == []


async def test_a_tool_without_such_parameters_takes_any_header() -> None:
    async with serving() as served:
        assert await sent(served, {"text": "a"}, ("Mcp-Param-Text", "b")) == (200, None)
