"""The parameters of a tool in one line, `(arg: type, opt?: type)`: enough to try a call, a tenth of its schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from pointsman.core.model import Json
from pointsman.providers.schema import Parameters, parameters_of, target

MAX_TYPE_CHARS = 60  # of one parameter; a longer type is shown by its kind alone
MAX_REQUIRED_CHARS = 2_000  # of all required parameters; more would flood the model, and no honest tool has more
MAX_DEPTH = 2  # of objects inside objects
MAX_INNER = 8  # parameters of an object inside; more of them would not fit
MAX_CHOICES = 6
MORE = "…"

_PLAIN = re.compile(r"[^\W\d][\w.\-$]*")
_QUOTABLE = re.compile(r"[^'\"\\\n\r\t]*")
_VAGUE = frozenset({"object", "any", "object[]", "any[]"})
_COMBINATIONS = ("anyOf", "oneOf")


def signature(tool: Json, room: int, *, typed: bool = True) -> str:
    """The required parameters and, within `room` characters, the optional ones. Never raises.

    If there is too little room, optional parameters lose their types first and their names last. Alternative sets of
    required parameters are shown in brackets: `(zip: string | lat: number, lon: number)`. Without `typed`, all are
    shown by name only.
    """
    schema = tool.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    types = _Types(schema) if typed else _NoTypes(schema)
    parameters = types.parameters(schema)
    required = list(_fitting(_required(parameters, types, MAX_DEPTH), MAX_REQUIRED_CHARS))
    room -= len(f"({', '.join(required)})")
    return f"({', '.join([*required, *_optional_fitting(parameters, types, room)])})"


def returns(schema: Json, room: int) -> str:
    """The type of a call's result, `{title: string, labels?: string[]}`, within `room` characters. Never raises.

    Of an object that does not fit, the first properties are shown.
    """
    types = _Types(schema)
    for depth in range(MAX_DEPTH, 0, -1):
        text = types.type_of(schema, depth)
        if len(text) <= room and text not in _VAGUE:
            return text
    inner, brackets = (schema.get("items"), "[]") if schema.get("type") == "array" else (schema, "")
    parameters = types.parameters(inner if isinstance(inner, dict) else {})
    properties = chain(_required(parameters, types, 0), _optional(parameters, types, 0))
    listed = ", ".join(_fitting(properties, room - len(f"{{{MORE}}}{brackets}")))
    if listed in ("", MORE):
        return types.short(schema, 0)
    return f"{{{listed}}}{brackets}"


def _fitting(parameters: Iterator[str], room: int) -> Iterator[str]:
    """The first ones that fit, and a mark if there are more."""
    for text in parameters:
        room -= len(text) + 2
        if room < 0:
            yield MORE
            return
        yield text


def _optional_fitting(parameters: Parameters, types: _Types, room: int) -> list[str]:
    """All optional parameters by name while there is room, and the types of the first with the rest of it."""
    optional = _optional_types(parameters)
    shown = list(_fitting((f"{_name(name)}?" for name in optional), room))
    room -= sum(len(text) + 2 for text in shown)
    for place, schema in enumerate(optional.values()):
        if place == len(shown) or shown[place] == MORE or room <= 0:
            break
        described = types.suffix(schema, MAX_DEPTH)
        if len(described) <= room:
            room -= len(described)
            shown[place] += described
    return shown


def _required(parameters: Parameters, types: _Types, depth: int) -> Iterator[str]:
    def named(names: Iterable[str]) -> list[str]:
        return [f"{_name(name)}{types.suffix(parameters.properties.get(name), depth)}" for name in names]

    yield from named(parameters.required)
    ways = [", ".join(named(way)) for way in parameters.ways]
    if parameters.more_ways:
        ways.append(MORE)
    if ways:
        yield f"({' | '.join(ways)})"


def _optional(parameters: Parameters, types: _Types, depth: int) -> Iterator[str]:
    for name, inner in _optional_types(parameters).items():
        yield f"{_name(name)}?{types.suffix(inner, depth)}"


def _optional_types(parameters: Parameters) -> Json:
    required = parameters.required.keys() | {name for way in parameters.ways for name in way}
    return {name: inner for name, inner in parameters.properties.items() if name not in required}


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _literal(name)


class _Types:
    """Renders the types of one schema; references are resolved in it."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def parameters(self, schema: Json) -> Parameters:
        return parameters_of(schema, self._root)

    def suffix(self, schema: Any, depth: int) -> str:
        """The type behind a parameter's name."""
        return f": {self.short(schema, depth)}"

    def short(self, schema: Any, depth: int) -> str:
        """The most exact form that fits MAX_TYPE_CHARS."""
        for deep in range(depth, -1, -1):
            text = self.type_of(schema, deep)
            if len(text) <= MAX_TYPE_CHARS:
                return text
        return self._kind(schema)

    def type_of(self, schema: Any, depth: int) -> str:
        if not isinstance(schema, dict) or depth < -MAX_DEPTH:  # nested lists count, too
            return "any"
        if "$ref" in schema:
            referenced = target(schema["$ref"], self._root)
            return self.type_of(referenced, depth - 1) if depth > 0 else self._kind(referenced)
        if "const" in schema:
            return _literal(schema["const"])
        choices = schema.get("enum")
        if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
            return "|".join(map(_literal, choices))
        for key in _COMBINATIONS:
            if isinstance(schema.get(key), list) and schema[key]:
                return self._union(schema[key][:MAX_CHOICES], depth)
        parts = schema.get("allOf")
        if isinstance(parts, list) and len(parts) == 1 and "properties" not in schema:
            return self.type_of(parts[0], depth - 1)
        named = schema.get("type")
        if isinstance(named, list) and named:
            return self._union([{**schema, "type": one} for one in named[:MAX_CHOICES]], depth)
        return self._plain(schema, named, depth)

    def _plain(self, schema: Json, named: Any, depth: int) -> str:
        if named == "array" or (named is None and "items" in schema):
            inner = self.type_of(schema.get("items"), depth - 1)
            return f"({inner})[]" if "|" in inner and not inner.startswith("{") else f"{inner}[]"
        if named == "object" or (named is None and ("properties" in schema or "allOf" in schema)):
            return self._object(schema, depth)
        return named if isinstance(named, str) and _PLAIN.fullmatch(named) else "any"

    def _object(self, schema: Json, depth: int) -> str:
        if depth <= 0:
            return "object"
        parameters = self.parameters(schema)
        if not 0 < len(parameters.properties) <= MAX_INNER:
            return "object"
        inner = [*_required(parameters, self, depth - 1), *_optional(parameters, self, depth - 1)]
        return f"{{{', '.join(inner)}}}"

    def _union(self, schemas: list[Any], depth: int) -> str:
        return "|".join(dict.fromkeys(self.type_of(schema, depth - 1) for schema in schemas))

    def _kind(self, schema: Any) -> str:
        """The kind of a type that is too long to show."""
        named = schema.get("type") if isinstance(schema, dict) else None
        return named if isinstance(named, str) and len(named) <= MAX_TYPE_CHARS else "any"


class _NoTypes(_Types):
    def suffix(self, schema: Any, depth: int) -> str:
        return ""


def _literal(value: Any) -> str:
    """A value as JSON, but texts in single quotes, which need no escape inside the answer's JSON."""
    if isinstance(value, str) and _QUOTABLE.fullmatch(value):
        return f"'{value}'"
    return msgspec.json.encode(value).decode()
