"""A shown schema has all that a call needs, and nothing that tells a model nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.catalog.schema.lean import lean_schema

LARGEST = 2**53 - 1


def test_what_generators_add_to_every_schema_is_left_out() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "ReadFileArguments",
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "title": "File Path"},
            "line": {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST},
            "unit": {"anyOf": [{"enum": ["C", "F"]}, {"type": "null"}], "default": None, "description": "Of heat"},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }
    assert lean_schema(schema) == {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "line": {"type": "integer"},
            "unit": {"enum": ["C", "F"], "description": "Of heat"},
        },
        "required": ["file_path"],
    }


@pytest.mark.parametrize(
    "telling",
    [
        {"properties": {"x": {"title": "Width in pixels"}}},
        {"properties": {"title": {"type": "string"}, "$schema": {"type": "string"}, "maximum": {"const": LARGEST}}},
        {"additionalProperties": {"type": "integer"}, "type": "object"},
        {"properties": {"n": {"minimum": 0, "maximum": 10}}},
        {"properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
        {"properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 5}}},
        {"properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "default": None}}},
        {"properties": {"n": {"enum": [{"title": "n"}], "default": {"$schema": "x"}, "const": {"title": "n"}}}},
        {"$defs": {"n": {"type": "object"}}, "allOf": [{"$ref": "#/$defs/n"}], "required": ["title"]},
    ],
)
def test_what_says_something_stays(telling: dict[str, Any]) -> None:
    assert lean_schema(telling) == telling


def test_a_title_beside_a_description_says_nothing() -> None:
    schema = {"properties": {"x": {"items": {"title": "Some Thing", "description": "One of the things"}}}}
    assert lean_schema(schema) == {"properties": {"x": {"items": {"description": "One of the things"}}}}


_WORDS = ["title", "properties", "anyOf", "default", "maximum", "minimum", "$schema", "items", "additionalProperties"]
_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(_WORDS), _ODD))
def test_no_schema_is_too_odd(schema: dict[str, Any]) -> None:
    assert lean_schema(schema).keys() <= schema.keys()
