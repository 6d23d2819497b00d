"""A form for the arguments of a tool, made from its inputSchema, and the arguments that a sent form means.

Strings, numbers, booleans and enums have fields of their own; everything else is JSON in a text area. What has no field
here is typed as a JSON object under `more`. Each field is bounded, and so is their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pointsman.core.escape import escaped_json
from pointsman.core.model import Json

MAX_FIELDS = 40
MAX_CHOICES = 100
MAX_NAME = 200
MORE = "more"
_PREFIX = "a:"  # of the names of fields: an argument may be called `command`, and no field of the page is
_SCALARS = (str, int, float, bool)

Kind = Literal["text", "number", "boolean", "choice", "json"]


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Kind
    required: bool
    hint: str
    placeholder: str
    choices: tuple[tuple[str, str], ...]  # value and label
    value: str
    error: str

    @property
    def form_name(self) -> str:
        return _PREFIX + self.name


def fields_of(schema: Any, values: Mapping[str, str], errors: Mapping[str, str]) -> list[Field]:
    """The fields of a form. `values` and `errors` are by the names of the arguments."""
    required = set(_strings(schema.get("required"))) if isinstance(schema, Mapping) else set()
    return [
        Field(
            *(name, _kind(part), name in required, _text(part.get("description")), _placeholder(part)),
            *(tuple(_choices(part)), values.get(name, ""), errors.get(name, "")),
        )
        for name, part in _properties(schema)
    ]


def read_arguments(schema: Any, form: Mapping[str, Sequence[str]]) -> tuple[Json, dict[str, str]]:
    """The arguments that a form means, and what is wrong, by the name of the argument or `more`.

    An empty field is an argument that is not given, but for a string that is required.
    """
    arguments: Json = {}
    errors: dict[str, str] = {}
    for field in fields_of(schema, typed_values(form), {}):
        typed = field.value
        if not typed.strip() and not (field.required and field.kind == "text"):
            continue
        try:
            arguments[field.name] = _value(field, typed)
        except ValueError as error:
            errors[field.name] = str(error)
    typed = typed_values(form, "").get(MORE, "")
    if typed.strip():
        try:
            arguments |= _object(typed)
        except ValueError as error:
            errors[MORE] = str(error)
    return arguments, errors


def typed_values(form: Mapping[str, Sequence[str]], prefix: str = _PREFIX) -> dict[str, str]:
    """What was typed, by the names of the arguments. Browsers send lines with CRLF."""
    return {
        name.removeprefix(prefix): values[0].replace("\r\n", "\n")
        for name, values in form.items()
        if name.startswith(prefix) and values
    }


def draft(schema: Any, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The values with which a form would mean these arguments; those without a field are under `more`."""
    values, rest = {}, dict(arguments)
    for field in fields_of(schema, {}, {}):
        if field.name in rest and (typed := _typed(field, rest[field.name])) is not None:
            values[field.name] = typed
            del rest[field.name]
    return values | ({MORE: pretty(rest)} if rest else {})


def pretty(value: Any) -> str:
    """JSON for people, with characters escaped that would not be seen."""
    return escaped_json(json.dumps(value, indent=2, ensure_ascii=False))


def _properties(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return
    usable = [(name, part) for name, part in properties.items() if len(name) <= MAX_NAME and name.isprintable()]
    for name, part in usable[:MAX_FIELDS]:
        yield name, _main_branch(part) if isinstance(part, Mapping) else {}


def _main_branch(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of `anyOf: [X, null]` X, with the description outside."""
    for key in ("anyOf", "oneOf"):
        branches = part.get(key)
        if isinstance(branches, list):
            main = [one for one in branches if isinstance(one, Mapping) and one.get("type") != "null"]
            if len(main) == 1:
                return {**main[0], **{name: part[name] for name in ("description", "default") if name in part}}
    return part


def _kind(part: Mapping[str, Any]) -> Kind:
    if any(True for _ in _choices(part)):
        return "choice"
    named = part.get("type")
    types = [one for one in (named if isinstance(named, list) else [named]) if one != "null"]
    by_type: dict[Any, Kind] = {"string": "text", "number": "number", "integer": "number", "boolean": "boolean"}
    if len(types) != 1 or not isinstance(types[0], str):
        return "json"
    return by_type.get(types[0], "json")


def _choices(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    values = part.get("enum") if "enum" in part else [part["const"]] if "const" in part else []
    if isinstance(values, list) and len(values) <= MAX_CHOICES and all(isinstance(one, _SCALARS) for one in values):
        yield from ((json.dumps(one), str(one) if isinstance(one, str) else json.dumps(one)) for one in values)


def _placeholder(part: Mapping[str, Any]) -> str:
    return f"default: {json.dumps(part['default'], ensure_ascii=False)[:80]}" if "default" in part else ""


def _value(field: Field, typed: str) -> Any:
    """Raises ValueError with a sentence."""
    if field.kind == "text":
        return typed
    if field.kind == "choice":
        if typed not in [value for value, _ in field.choices]:
            raise ValueError("Choose one of the values.")
        return json.loads(typed)
    if field.kind == "boolean":
        if typed not in ("true", "false"):
            raise ValueError("Choose true or false.")
        return typed == "true"
    value = _json(typed, "This is not a number." if field.kind == "number" else "This is not JSON")
    if field.kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError("This is not a number.")
    return value


def _typed(field: Field, value: Any) -> str | None:
    """What would be typed for a value; None: the field cannot mean it."""
    if field.kind == "json":
        return pretty(value)
    if field.kind == "text":
        return value if isinstance(value, str) and value else None
    encoded = json.dumps(value)
    try:
        return encoded if _value(field, encoded) == value else None
    except ValueError:
        return None


def _object(typed: str) -> Json:
    value = _json(typed, "This is not JSON")
    if not isinstance(value, dict):
        raise ValueError('This must be a JSON object, such as {"city": "Berlin"}.')  # noqa: TRY004 - typed by a person
    return value


def _json(typed: str, wrong: str) -> Any:
    try:
        return json.loads(typed, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("This is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(wrong if wrong.endswith(".") else f"{wrong}: {error}.") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
