"""The types that the protocol gives to the fields of a list's entries. What has another type is left out.

Strict clients refuse a whole page, with the entries of all servers, for one field of a wrong type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pointsman.core.model import Json

_LARGEST_SIZE = 2**53  # larger numbers are not exact in every client

FieldCheck = Callable[[Any], Any]
"""Returns the value itself if its type is right, else what of it can be shown; None: nothing."""


def with_right_types(entry: Json, key: str) -> Json:
    """A prompt, resource or template without fields of a wrong type; itself if it has none.

    `key` is the field that names it. A resource or template without a name, which it must have, gets its URI for one.
    """
    shown = _checked(entry, _PROMPT if key == "name" else _RESOURCE)
    return shown if "name" in shown else {**shown, "name": shown[key]}


def tool_with_right_types(tool: Json) -> Json:
    """As `with_right_types`."""
    return _checked(tool, _TOOL)


def _checked(entry: Json, types: Mapping[str, FieldCheck]) -> Json:
    """The entry itself if nothing has to be left out, so that sound ones keep their identity."""
    checked = {key: types[key](entry[key]) for key in entry.keys() & types.keys()}
    if all(value is not None and value is entry[key] for key, value in checked.items()):
        return entry
    shown = {key: checked.get(key, value) for key, value in entry.items()}
    return {key: value for key, value in shown.items() if value is not None or key not in checked}


def _object(types: Mapping[str, FieldCheck], *required: str) -> FieldCheck:
    """Checks the fields of an object; None if a required one is missing or invalid."""

    def checked(value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        shown = _checked(value, types)
        return shown if all(key in shown for key in required) else None

    return checked


def _list_of(part: FieldCheck) -> FieldCheck:
    """Drops invalid items."""

    def checked(value: Any) -> Any:
        if not isinstance(value, list):
            return None
        parts = [part(each) for each in value]
        same = all(shown is not None and shown is each for shown, each in zip(parts, value, strict=True))
        return value if same else [shown for shown in parts if shown is not None]

    return checked


def _one_of(*choices: str) -> FieldCheck:
    return lambda value: value if value in choices else None


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else None


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _size(value: Any) -> Any:
    return value if _is_number(value) and abs(value) <= _LARGEST_SIZE and value == int(value) else None


def _priority(value: Any) -> Any:
    return value if _is_number(value) and 0 <= value <= 1 else None


def _properties(value: Any) -> Any:
    """An invalid schema of a property becomes `{}`, which accepts any value."""
    if not isinstance(value, dict):
        return None
    if all(isinstance(schema, (dict, bool)) for schema in value.values()):
        return value
    return {name: schema if isinstance(schema, (dict, bool)) else {} for name, schema in value.items()}


_SCHEMA = _object({"$schema": _text, "properties": _properties, "required": _list_of(_text)})
_ICON = _object({"src": _text, "mimeType": _text, "sizes": _list_of(_text), "theme": _one_of("light", "dark")}, "src")
_ARGUMENT = _object({"name": _text, "title": _text, "description": _text, "required": _flag}, "name")
_ANNOTATIONS = _object(
    {"audience": _list_of(_one_of("user", "assistant")), "priority": _priority, "lastModified": _text}
)

_ALL: Mapping[str, FieldCheck] = {"title": _text, "description": _text, "icons": _list_of(_ICON), "_meta": _object({})}
_PROMPT: Mapping[str, FieldCheck] = {**_ALL, "arguments": _list_of(_ARGUMENT)}
_RESOURCE: Mapping[str, FieldCheck] = {
    **_ALL,
    "name": _text,
    "mimeType": _text,
    "size": _size,
    "annotations": _ANNOTATIONS,
}
_TOOL: Mapping[str, FieldCheck] = {
    **_ALL,
    "inputSchema": _SCHEMA,
    "outputSchema": _SCHEMA,
    "execution": _object({"taskSupport": _one_of("forbidden", "optional", "required")}),
}
