"""Arguments as words of a command line: the tool's inputSchema decides whether `1` is a number or text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pointsman.core.model import Json

_ALTERNATIVES = ("anyOf", "oneOf")


def typed(arguments: Json, words: Mapping[str, str], schema: Any) -> Json:
    """Use an argument's word as text where the schema takes a string there and not the JSON that the word is."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return arguments
    chosen = dict(arguments)
    for name, word in words.items():
        types = set(_types(properties.get(name)))
        if name in chosen and "string" in types and not types & _types_of(chosen[name]):
            chosen[name] = word
    return chosen


def _types(schema: Any) -> Iterator[str]:
    """The types that a schema names, itself or in its alternatives."""
    if not isinstance(schema, Mapping):
        return
    named = schema.get("type")
    yield from (each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str))
    for key in _ALTERNATIVES:
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else ():
            inner = branch.get("type") if isinstance(branch, Mapping) else None
            if isinstance(inner, str):
                yield inner


def _types_of(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return {names[type(value)]}
