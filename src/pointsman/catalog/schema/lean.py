"""A schema for a model: without the keywords that tell it nothing. Arguments are checked against the original."""

from __future__ import annotations

from typing import Any

from pointsman.core.model import Json
from pointsman.providers.text import squeezed

_SAFE_INTEGER = 2**53 - 1  # a bound that generators write for every integer
_NULL = {"type": "null"}
_SAYS_NOTHING = ("$schema", "$comment")
# Keywords whose values are compared exactly, and those whose objects have names for keys.
_VERBATIM = frozenset({"enum", "const", "default", "example", "examples", "required", "dependentRequired"})
_NAMES_INSIDE = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def lean_schema(schema: Json) -> Json:
    """The schema without the name of its dialect, comments, `additionalProperties: false`, the bounds of safe integers,
    null as the default of an optional parameter, and titles that repeat a parameter's name or stand beside a
    description.
    """
    shown: Json = _lean(schema, None)
    shown.pop("title", None)
    return shown


def _lean(schema: Any, name: str | None) -> Any:
    """`name` is that of the parameter, if it is one."""
    if isinstance(schema, list):
        return [_lean(part, None) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = _without_null(schema)
    shown: Json = {}
    for key, value in schema.items():
        if key in _VERBATIM:
            shown[key] = value
        elif key in _NAMES_INSIDE and isinstance(value, dict):
            shown[key] = {inner: _lean(part, inner) for inner, part in value.items()}
        elif not _says_nothing(schema, key, name):
            shown[key] = _lean(value, None)
    return shown


def _without_null(schema: Json) -> Json:
    """An optional parameter as generators write it, `anyOf` its type and null, which is the default: only its type."""
    options = schema.get("anyOf")
    if "default" not in schema or schema["default"] is not None or not isinstance(options, list):
        return schema
    types = [option for option in options if option != _NULL]
    if len(types) != 1 or len(options) != 2 or not isinstance(types[0], dict):
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**types[0], **rest}


def _says_nothing(schema: Json, key: str, name: str | None) -> bool:
    value = schema[key]
    if key == "title" and isinstance(value, str):
        return "description" in schema or (name is not None and squeezed(value) == squeezed(name))
    if key == "additionalProperties":
        return value is False
    if key == "maximum":
        return bool(value == _SAFE_INTEGER)
    if key == "minimum":
        return bool(value == -_SAFE_INTEGER)
    return key in _SAYS_NOTHING
