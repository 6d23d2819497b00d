"""Arguments that are expensive to check or to explain cost their own call, and no other caller anything."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, workshop
from tests.router.front.http.test_bad_input import error_of

Json = dict[str, Any]

FILTER: Json = {"$ref": "#/$defs/filter"}
GROUPS = [
    {
        "type": "object",
        "properties": {"op": {"const": op}, "args": {"type": "array", "items": FILTER}},
        "required": ["op", "args"],
    }
    for op in ("and", "or", "not")
]
LEAF = {
    "type": "object",
    "properties": {"field": {"type": "string"}, "op": {"enum": ["eq", "lt"]}, "value": {}},
    "required": ["field", "op", "value"],
}
QUERY = {
    "type": "object",
    "properties": {"filter": FILTER},
    "$defs": {"filter": {"anyOf": [*GROUPS, LEAF]}},
}
TREE = {  # both branches take an array, so each level doubles the work
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 0},
                {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 99},
            ]
        }
    },
}
LADDER_STEPS = 40  # two to that power visits, and no reference goes in a circle
LADDER = {
    "type": "object",
    "properties": {"ladder": {"$ref": "#/$defs/0"}},
    "$defs": {
        str(n): {"allOf": [{"properties": {"c": {"$ref": f"#/$defs/{n + 1}"}}, "maxProperties": k} for k in (8, 9)]}
        for n in range(LADDER_STEPS)
    }
    | {str(LADDER_STEPS): {}},
}


def group(depth: int, width: int = 1, op: str = "eqq") -> Json:
    if depth == 0:
        return {"field": "name", "op": op, "value": 1}
    inner = group(depth - 1, width, op)
    return {"op": ("and", "or")[depth % 2], "args": [inner] * width}


def ladder(depth: int) -> Json:
    rung: Json = {}
    for _ in range(depth):
        rung = {"c": rung}
    return rung


ONE_TYPO = {"filter": group(7)}
THREE_KILOBYTES = {"filter": group(6, width=2)}
TINY = {"tree": json.loads("[" * 55 + "1" + "]" * 55)}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    trace, more = tmp_path / "trace", tmp_path / "tools.json"
    schemas = {"query": QUERY, "prune": TREE, "climb": LADDER}
    more.write_text(json.dumps([{"name": name, "inputSchema": schema} for name, schema in schemas.items()]))
    config = {"servers": {"shop": workshop(trace, env={"MORE_TOOLS": str(more)})}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        yield Shop(gateway, http, trace)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("query", ONE_TYPO), ("query", THREE_KILOBYTES), ("prune", TINY)],
    ids=["typo", "3K", "tiny"],
)
async def test_wrong_arguments_are_refused_while_others_are_answered(shop: Shop, tool: str, arguments: Json) -> None:
    async with asyncio.timeout(30):
        wrong = [asyncio.create_task(shop.execute(f"shop:{tool}", arguments)) for _ in range(3)]
        for _ in range(10):
            assert not (await shop.execute("shop:paint", {"object": "door"})).get("isError")
        for result in await asyncio.gather(*wrong):
            code, message = error_of(result)
            assert code == "invalid_arguments"
            assert "do not fit" in message
            assert '"inputSchema"' in message or '"$defs"' in message
    assert {call["params"]["name"] for call in shop.ran()} == {"paint"}


async def test_right_arguments_for_the_same_schemas_pass(shop: Shop) -> None:
    async with asyncio.timeout(30):
        for tool, arguments in (("query", {"filter": group(7, op="eq")}), ("prune", {"tree": [[[], []]]})):
            assert not (await shop.execute(f"shop:{tool}", arguments)).get("isError")


async def test_a_small_mistake_in_a_recursive_schema_is_still_explained(shop: Shop) -> None:
    _, message = error_of(await shop.execute("shop:query", {"filter": group(2)}))
    assert "`filter`" in message
    assert "not valid under any of the schemas" in message


async def test_a_check_without_end_is_given_up_and_the_server_decides(shop: Shop) -> None:
    async with asyncio.timeout(30):
        for _ in range(2):
            assert not (await shop.execute("shop:climb", {"ladder": ladder(LADDER_STEPS)})).get("isError")
    assert shop.gateway.stderr.count("arguments of 'shop:climb' are not checked") == 1


async def test_the_gateway_ends_in_the_middle_of_a_check(shop: Shop) -> None:
    under_way = [asyncio.create_task(shop.execute("shop:climb", {"ladder": ladder(LADDER_STEPS)})) for _ in range(5)]
    await shop.execute("shop:paint", {"object": "door"})
    assert await shop.gateway.stop(signal.SIGTERM) == 0
    await asyncio.gather(*under_way, return_exceptions=True)
