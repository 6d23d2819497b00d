"""A tool in one line: what it needs is always there, what it takes as far as there is room."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.catalog.schema.signature import MAX_REQUIRED_CHARS, returns, signature

STRING = {"type": "string"}


def tool(properties: dict[str, Any], required: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return {"name": "do", "inputSchema": {**schema, **more.pop("schema", {})}, **more}


def line(properties: dict[str, Any], required: list[Any] | None = None, room: int = 200, **more: Any) -> str:
    return signature(tool(properties, required, **more), room)


def test_required_parameters_come_first_and_optional_ones_are_marked() -> None:
    shown = line({"limit": {"type": "integer"}, "city": STRING}, ["city"])
    assert shown == "(city: string, limit?: integer)"


def test_a_tool_without_parameters() -> None:
    assert line({}) == "()"
    assert signature({"name": "do"}, 80) == "()"
    assert signature({"name": "do", "inputSchema": {}}, 80) == "()"


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "array", "items": STRING}, "string[]"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, "number[][]"),
        ({"type": "array", "items": {"type": "object", "properties": {"x": STRING}}}, "{x?: string}[]"),
        ({"anyOf": [{"$ref": "#/$defs/colour"}, {"type": "null"}]}, "'red'|'blue'|null"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "('a'|'b')[]"),
        ({"enum": ["open", "closed"]}, "'open'|'closed'"),
        ({"type": "string", "enum": [f"choice {n}" for n in range(50)]}, "string"),
        ({"const": 3}, "3"),
        ({"type": ["string", "null"]}, "string|null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer|null"),
        ({"type": "object", "properties": {"x": STRING, "y": STRING}, "required": ["y"]}, "{y: string, x?: string}"),
        ({"type": "object", "properties": {f"name{n}": STRING for n in range(50)}}, "object"),
        ({"type": "object"}, "object"),
        ({"$ref": "#/$defs/colour"}, "'red'|'blue'"),
        ({"$ref": "#/$defs/none"}, "any"),
        ({"$ref": "https://elsewhere.example/x"}, "any"),
        (True, "any"),
        ({"type": "str"}, "str"),
        ({"type": 5}, "any"),
        ({"type": "odd (words)"}, "any"),
    ],
)
def test_types_are_named(schema: Any, shown: str) -> None:
    defs = {"$defs": {"colour": {"enum": ["red", "blue"]}}}
    assert line({"a": schema}, ["a"], schema=defs) == f"(a: {shown})"


def test_texts_with_quotes_are_written_as_json() -> None:
    assert line({"a": {"enum": ["it's", 'say "hi"', "plain"]}}, ["a"]) == """(a: "it's"|"say \\"hi\\""|'plain')"""


def test_optional_parameters_lose_their_types_before_their_names() -> None:
    options = {"city": STRING, **{f"option{n}": {"type": "integer"} for n in range(4)}}
    assert line(options, ["city"], room=63) == "(city: string, option0?: integer, option1?, option2?, option3?)"
    assert line(options, ["city"], room=54) == "(city: string, option0?, option1?, option2?, option3?)"


def test_optional_parameters_give_way_and_the_line_says_so() -> None:
    shown = line({"city": STRING, **{f"option{n}": STRING for n in range(20)}}, ["city"], room=48)
    assert shown == "(city: string, option0?, option1?, option2?, …)"


def test_names_alone_can_be_shown() -> None:
    properties = {
        "limit": {"type": "integer"},
        "city": STRING,
        "where": {"type": "object", "properties": {"x": STRING}},
    }
    assert signature(tool(properties, ["city"]), 80, typed=False) == "(city, limit?, where?)"
    assert signature({"name": "do", "inputSchema": {"anyOf": [ZIP, POINT]}}, 80, typed=False) == "((zip | lat, lon))"


def test_a_required_parameter_is_never_dropped() -> None:
    names = [f"a_rather_long_parameter_{n}" for n in range(40)]
    shown = line(dict.fromkeys(names, STRING) | {"optional": STRING}, names, room=60)
    assert all(f"{name}: string" in shown for name in names)
    assert "optional" not in shown


def test_more_required_parameters_than_anybody_could_give_are_cut() -> None:
    for names in ([f"r{n}" * 20 for n in range(5_000)], ["first", "x" * 100_000]):
        shown = line({}, names)
        assert len(shown) < MAX_REQUIRED_CHARS + 100
        assert shown.startswith(f"({names[0]}: any, ")
        assert shown.endswith(", …)")


def test_a_required_parameter_without_a_definition_is_named() -> None:
    assert line({}, ["city"]) == "(city: any)"


def test_names_that_are_no_words_are_quoted() -> None:
    assert line({"first name": STRING, "都市": STRING}, ["first name"]) == "('first name': string, 都市?: string)"


def test_schemas_that_go_in_circles_or_make_no_sense_are_shown_all_the_same() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    circle = {"$defs": {"node": node, "self": {"$ref": "#/$defs/self"}}}
    assert line({"a": {"$ref": "#/$defs/node"}}, ["a"], schema=circle) == "(a: {next?: object})"
    assert line({"a": {"$ref": "#/$defs/self"}}, ["a"], schema=circle) == "(a: any)"
    for odd in ({"properties": [], "required": "city"}, {"properties": {"a": None}, "required": [1, {}]}):
        assert signature({"name": "do", "inputSchema": odd}, 80).startswith("(")


_WORDS = st.sampled_from(
    [
        "type",
        "object",
        "array",
        "string",
        "properties",
        "items",
        "required",
        "enum",
        "anyOf",
        "$ref",
        "#/$defs/a",
        "$defs",
        "a",
    ]
)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=25,
)


@given(_ANYTHING, _ANYTHING)
def test_whatever_a_server_sends_can_be_shown(schema: Any, output: Any) -> None:
    shown = signature({"name": "do", "inputSchema": schema, "outputSchema": output}, 80)
    assert shown.startswith("(")
    required = schema.get("required") if isinstance(schema, dict) else None
    if isinstance(required, list):
        assert all(name in shown for name in required if name in ("a", "type", "items"))


def test_schemas_without_a_bottom_are_cut_off() -> None:
    lists: dict[str, Any] = STRING
    unions: dict[str, Any] = STRING
    for _ in range(5_000):
        lists, unions = {"items": lists}, {"anyOf": [unions]}
    assert line({"a": lists, "b": unions}, ["a", "b"]) == "(a: any[][][][][], b: any)"


def test_schemas_that_multiply_are_cheap() -> None:
    """Each definition names the next one many times: spelt out, it would fill the world."""
    wide = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/next"} for n in range(200)}}
    union = {"anyOf": [{"$ref": "#/$defs/union"}] * 200}
    names = [f"a{n}" for n in range(200)]
    properties = {name: {"$ref": "#/$defs/next"} for name in names} | {"u": {"$ref": "#/$defs/union"}}
    shown = line(properties, [*names, "u"], schema={"$defs": {"next": wide, "union": union}})
    assert shown.startswith("(a0: object, ")


CITY = {"type": "object", "properties": {"city": STRING}, "required": ["city"]}
ZIP = {"properties": {"zip": STRING}, "required": ["zip"]}
POINT = {"properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat", "lon"]}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"$ref": "#/$defs/in", "$defs": {"in": CITY}}, "city: string"),
        ({"allOf": [CITY, {"properties": {"days": {"type": "integer"}}}]}, "city: string, days?: integer"),
        ({"allOf": [{"$ref": "#/$defs/in"}], "required": ["days"], "$defs": {"in": CITY}}, "days: any, city: string"),
        ({"anyOf": [ZIP, POINT]}, "(zip: string | lat: number, lon: number)"),
        ({**CITY, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "city: string, (a: any | b: any)"),
        ({"anyOf": [CITY, {**CITY, **ZIP}, {"$ref": "#/nowhere"}]}, "city?: string, zip?: string"),
        ({"oneOf": [{**CITY, "required": ["city"]}, CITY]}, "city: string"),
        (
            {
                "oneOf": [
                    {"properties": {"kind": {"const": kind}, kind: STRING}, "required": ["kind", kind]}
                    for kind in ("a", "b")
                ]
            },
            "kind: 'a'|'b', (a: string | b: string)",
        ),
    ],
)
def test_references_and_combinations_are_seen_through(schema: dict[str, Any], shown: str) -> None:
    assert signature({"name": "do", "inputSchema": schema}, 200) == f"({shown})"


def test_more_alternatives_than_there_is_room_for_are_hinted_at() -> None:
    many = {"oneOf": [{"required": [f"p{n}"]} for n in range(30)]}
    shown = signature({"name": "do", "inputSchema": many}, 200)
    assert shown.startswith("((p0: any | p1: any | ")
    assert shown.endswith(" | …))")


def test_combinations_that_multiply_are_cheap() -> None:
    choice = {"anyOf": [{"required": [f"a{n}"]} for n in range(20)]}
    pairs = [{"anyOf": [{"required": [f"{n}x"]}, {"required": [f"{n}y"]}]} for n in range(30)]
    endless: dict[str, Any] = {"allOf": [{"$ref": "#"}] * 50, "anyOf": [{"$ref": "#"}] * 50, "required": ["city"]}
    for schema in ({"allOf": [choice] * 30}, {"allOf": pairs, "required": ["city"]}, endless):
        shown = signature({"name": "do", "inputSchema": schema}, 200)
        assert "…" in shown or "city: any" in shown


LABELS = {"type": "array", "items": STRING}
ISSUE = {"type": "object", "properties": {"title": STRING, "labels": LABELS, "body": STRING}, "required": ["title"]}


@pytest.mark.parametrize(
    ("schema", "room", "shown"),
    [
        (ISSUE, 80, "{title: string, labels?: string[], body?: string}"),
        (ISSUE, 40, "{title: string, labels?: string[], …}"),
        (ISSUE, 20, "{title: string, …}"),
        (ISSUE, 10, "object"),
        ({"type": "array", "items": ISSUE}, 80, "{title: string, labels?: string[], body?: string}[]"),
        ({"type": "array", "items": ISSUE}, 25, "{title: string, …}[]"),
        ({"type": "object"}, 80, "object"),
        (
            {"type": "object", "properties": {f"name{n}": STRING for n in range(50)}},
            40,
            "{name0?: string, name1?: string, …}",
        ),
        ({"type": "string"}, 80, "string"),
        ({"anyOf": [STRING, {"type": "null"}]}, 80, "string|null"),
        ({}, 80, "any"),
    ],
)
def test_what_comes_back_is_told_within_its_room(schema: dict[str, Any], room: int, shown: str) -> None:
    assert returns(schema, room) == shown


@given(
    st.recursive(
        st.sampled_from([{}, STRING, {"type": "object"}, {"type": 5}, {"enum": []}, {"$ref": "#"}, None, 3, []]),
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["object", "array", ["string", "null"], "odd"]),
                "properties": st.dictionaries(st.text(max_size=5), inner, max_size=4),
                "items": inner,
                "anyOf": st.lists(inner, max_size=3),
                "required": st.just(["a", 1]),
            },
        ),
        max_leaves=10,
    ),
    st.integers(0, 100),
)
def test_no_schema_is_too_odd_to_be_told(schema: Any, room: int) -> None:
    if isinstance(schema, dict):
        told = returns(schema, room)
        assert 0 < len(told) <= max(room, 60)
