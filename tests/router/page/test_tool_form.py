"""The form of a tool's arguments: what it means is what was typed, and any schema gives a bounded form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.router.page.tool_form import MAX_FIELDS, MORE, draft, fields_of, read_arguments

SCHEMA = {
    "type": "object",
    "required": ["name", "size"],
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "loud": {"type": "boolean", "default": False},
        "colour": {"enum": ["red", 5, True]},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "command": {"type": "string"},
    },
}


def form(**values: str) -> dict[str, list[str]]:
    return {name if name == MORE else f"a:{name}": [value] for name, value in values.items()}


def test_each_kind_has_its_field() -> None:
    kinds = {field.name: field.kind for field in fields_of(SCHEMA, {}, {})}
    assert kinds == {
        "name": "text",
        "size": "number",
        "ratio": "number",
        "loud": "boolean",
        "colour": "choice",
        "maybe": "text",
        "either": "json",
        "tags": "json",
        "command": "text",
    }


def test_arguments_have_the_types_of_the_schema() -> None:
    typed = form(name=" a\r\nb ", size="5", ratio="-1.5e3", loud="false", colour="true", tags='["x"]', command="ls")
    arguments, errors = read_arguments(SCHEMA, {**typed, "other": ["ignored"]})
    assert errors == {}
    assert arguments == {
        "name": " a\nb ",
        "size": 5,
        "ratio": -1500.0,
        "loud": False,
        "colour": True,
        "tags": ["x"],
        "command": "ls",
    }
    assert read_arguments(SCHEMA, form(name="", size=""))[0] == {"name": ""}
    assert read_arguments(SCHEMA, form(more='{"size": 7, "new": null}', size="5"))[0] == {
        "size": 7,
        "new": None,
        "name": "",
    }


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("size", "five"),
        ("size", "true"),
        ("size", "NaN"),
        ("size", "1" * 10_000),
        ("ratio", '"1"'),
        ("loud", "yes"),
        ("colour", '"blue"'),
        ("colour", "5.0"),
        ("tags", "[1"),
        ("tags", "[" * 100_000),
        ("more", "[1]"),
        ("more", "nothing"),
        ("more", "{" * 100_000),
    ],
)
def test_a_wrong_value_is_named(name: str, typed: str) -> None:
    arguments, errors = read_arguments(SCHEMA, form(**{name: typed}))
    assert list(errors) == [name]
    assert len(errors[name]) < 200
    assert name not in arguments


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(
        {"name": st.text(min_size=1).filter(lambda text: "\r" not in text), "size": st.integers() | st.text()},
        optional={
            "ratio": st.floats(allow_nan=False, allow_infinity=False) | st.none(),
            "loud": st.booleans() | st.integers(),
            "colour": st.sampled_from(["red", 5, True, "blue"]),
            "tags": st.lists(st.text()) | st.none(),
            "unheard": st.recursive(
                st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
            ),
        },
    )
)
def test_a_draft_means_the_arguments_that_it_was_made_of(arguments: dict[str, Any]) -> None:
    typed = draft(SCHEMA, arguments)
    read, errors = read_arguments(SCHEMA, form(**typed))
    assert errors == {}
    assert json.dumps(read, sort_keys=True) == json.dumps(arguments, sort_keys=True)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {},
        {"properties": []},
        {
            "properties": {
                "a": None,
                "b": 5,
                "c": {"type": []},
                "d": {"type": {}},
                "e": {"enum": "x"},
                "f": {"anyOf": 5},
            }
        },
        {"properties": {"a": {"enum": [{}]}, "b": {"enum": list(range(5000))}}, "required": "a"},
        {"properties": {f"p{number}": {"type": "string"} for number in range(5000)}},
        {"properties": {"n" * 100_000: {}, "\x1b[31m": {}}},
        {"properties": {"a": {"anyOf": [{"type": "string", "enum": [None]}]}}, "required": [5, {}]},
    ],
)
def test_any_schema_gives_a_bounded_form(schema: Any) -> None:
    fields = fields_of(schema, {}, {})
    assert len(fields) <= MAX_FIELDS
    assert all(len(field.choices) <= 100 for field in fields)
    assert read_arguments(schema, {}) == ({}, {}) or read_arguments(schema, {})[1] == {}
