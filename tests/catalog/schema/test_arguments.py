"""Arguments are checked, mismatches explained, and hostile schemas and arguments stay cheap."""

from __future__ import annotations

import asyncio
import http.server
import logging
import threading
from typing import Any

import pytest

from pointsman.catalog.schema.arguments import MAX_SHOWN_SCHEMA_CHARS, ArgumentCheck, DeferredCheck
from pointsman.catalog.schema.cost import bound_cost
from pointsman.core.errors import InvalidArgumentsError
from pointsman.router.gateway.check_process import CheckProcess

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "maximum": 10},
        "units": {"enum": ["metric", "imperial"]},
        "stops": {"type": "array", "items": {"type": "object", "properties": {"lat": {"type": "number"}}}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def settle(deferred: DeferredCheck | None) -> None:
    async def run() -> None:
        process = CheckProcess()
        try:
            if deferred is not None:
                await process.settle(deferred, "test")
        finally:
            await process.close()

    asyncio.run(run())


def problem(schema: dict[str, Any], arguments: Any) -> str:
    with pytest.raises(InvalidArgumentsError) as error:
        settle(ArgumentCheck("weather:forecast", schema)(arguments))
    assert error.value.code == "invalid_arguments"
    return str(error.value)


@pytest.mark.parametrize("arguments", [{"city": "Oslo"}, {"city": "Oslo", "days": 3, "units": "metric", "stops": []}])
def test_arguments_that_fit_pass(arguments: dict[str, Any]) -> None:
    ArgumentCheck("weather:forecast", SCHEMA)(arguments)


@pytest.mark.parametrize(
    ("arguments", "where", "what"),
    [
        ({}, "`arguments`", '"city" is a required property'),
        ({"city": 5}, "`city`", 'is not of type "string"'),
        ({"city": "Oslo", "days": 11}, "`days`", "maximum"),
        ({"city": "Oslo", "units": "kelvin"}, "`units`", '"metric" or "imperial"'),
        ({"city": "Oslo", "stops": [{"lat": 1}, {"lat": "x"}]}, "`stops[1].lat`", '"number"'),
        ({"city": "Oslo", "town": 1}, "`arguments`", "'town' was unexpected"),
        (["Oslo"], "`arguments`", "must be an object"),
        ("Oslo", "`arguments`", "must be an object"),
        (None, "`arguments`", "must be an object"),
    ],
)
def test_a_mismatch_says_what_is_wrong_and_where_and_shows_the_schema(arguments: Any, where: str, what: str) -> None:
    message = problem(SCHEMA, arguments)
    assert where in message
    assert what in message
    assert "weather:forecast" in message
    assert '"minLength":2' in message


def test_of_many_problems_only_a_few_are_listed() -> None:
    schema = {"properties": {str(n): {"type": "integer"} for n in range(20)}}
    message = problem(schema, {str(n): "x" for n in range(20)})
    assert message.count('is not of type "integer"') == 5
    assert "and more" in message


def test_a_long_value_is_not_repeated_but_the_reason_is() -> None:
    message = problem({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 100_000})
    assert len(message) < 1_000
    assert 'is not of type "integer"' in message


def test_a_large_schema_is_shown_in_part() -> None:
    schema = {"required": ["a"], "properties": {f"property{n}": {"type": "string"} for n in range(2_000)}}
    assert len(problem(schema, {})) < MAX_SHOWN_SCHEMA_CHARS + 2_000


def test_numbers_beyond_64_bits_pass() -> None:
    ArgumentCheck("s:t", {"properties": {"n": {"type": "integer"}}})({"n": 2**90})


def test_a_million_wrong_values_are_refused_without_listing_them() -> None:
    schema = {"properties": {"u": {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]}}}
    assert "too many values" in problem(schema, {"u": [1] * 1_000_000})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": 5},
        {"$schema": 5},
        {"$schema": "https://example.com/unheard-of"},
        {"properties": {"a": {"pattern": "["}}},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"description": "x" * 300_000, "required": ["b"]},
    ],
)
def test_a_schema_that_cannot_be_used_stops_nobody_and_is_logged_once(
    schema: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    check = ArgumentCheck("s:t", schema)
    with caplog.at_level(logging.WARNING):
        settle(check({"a": 1}))
        settle(check({"a": "x"}))
    assert len(caplog.records) == 1
    assert "\n" not in caplog.text.strip()


def test_a_reference_to_outside_is_never_fetched() -> None:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "integer"}')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/schema.json"
        for schema in ({"properties": {"a": {"$ref": url}}}, {"$schema": url}, {"$id": url, "$ref": "other.json"}):
            settle(ArgumentCheck("s:t", schema)({"a": "x"}))
        server.shutdown()
        thread.join()
    assert asked == []


def doubling(depth: int, keyword: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(depth)
    }
    definitions[f"d{depth}"] = {"type": "string"}
    return {"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/d0"}}}


CIRCLE = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
TANGLE = {
    "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{m}"} for m in range(12)]} for n in range(12)},
    "$ref": "#/$defs/0",
}


@pytest.mark.parametrize("schema", [doubling(60, "anyOf"), doubling(60, "allOf"), CIRCLE, TANGLE])
def test_a_schema_that_multiplies_is_left_to_the_check_process(schema: dict[str, Any]) -> None:
    assert bound_cost(schema) is None
    assert isinstance(ArgumentCheck("s:t", schema)({"a": 1}), DeferredCheck)


RECURSIVE = {"properties": {"value": {"type": "integer"}, "child": {"$ref": "#"}}}
NULLABLE = {"properties": {f"p{n}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(300)}}


@pytest.mark.parametrize("schema", [SCHEMA, RECURSIVE, NULLABLE, doubling(5, "anyOf"), {}])
def test_ordinary_schemas_are_evaluated(schema: dict[str, Any]) -> None:
    work = bound_cost(schema)
    assert work is not None
    assert work.per_value < 2_000
    assert ArgumentCheck("s:t", schema)({"city": "Oslo"}) is None


def test_a_recursive_schema_is_checked_at_every_depth() -> None:
    assert "`child.child.value`" in problem(RECURSIVE, {"child": {"child": {"value": "x"}}})


def test_arguments_of_any_depth_are_survived() -> None:
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"child": deep}
    ArgumentCheck("s:t", RECURSIVE)(deep)


def test_a_schema_that_discovery_does_not_show_is_shown_whole() -> None:
    long = {f"option{n}": {"type": "string", "description": "What it is good for. " * 5} for n in range(150)}
    schema = {"properties": {**long, "last_of_all": {"type": "string"}}, "required": ["city"]}
    assert '"last_of_all"' in problem(schema, {})
