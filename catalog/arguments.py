"""Checks a call's arguments against the tool's inputSchema, and says what is wrong so that a model can mend it."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any

import msgspec
from jsonschema_rs import ValidationError, Validator, validator_for

from pointsman.catalog.errors import InvalidArguments
from pointsman.catalog.model import Json

logger = logging.getLogger(__name__)

MAX_SCHEMA_BYTES = 262_144
MAX_SHOWN_SCHEMA_CHARS = 40_000  # only who got it wrong has to read it
MAX_EXPANSION = 2_000  # sub-schemas that one value may have to be held against
MAX_EXPLAINED_VALUES = 1_000  # larger arguments are only told that they are wrong
MAX_PROBLEMS = 5
MAX_PROBLEM_CHARS = 240

# Applied to the same value as the schema that holds them, so they multiply where they refer to each other.
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas",)


class ArgumentCheck:
    """The check of one tool definition. The schema is compiled at the first call, and only once."""

    __slots__ = ("_compiled", "_schema", "_tool_key", "_validator")

    def __init__(self, tool_key: str, schema: Json) -> None:
        self._tool_key = tool_key
        self._schema = schema
        self._compiled = False
        self._validator: Validator | None = None

    def __call__(self, arguments: Any) -> None:
        """Raises InvalidArguments. A schema that is itself wrong stops nobody: the server decides then."""
        if not isinstance(arguments, dict):
            raise self._mismatch(["`arguments`: must be an object"])
        if not self._compiled:
            self._validator = self._compile()
            self._compiled = True
        if self._validator is None or self._validator.is_valid(arguments):
            return
        raise self._mismatch(self._problems(self._validator, arguments))

    def _compile(self) -> Validator | None:
        """None for a schema that cannot be used, which is said once in the log."""
        try:
            _refuse_costly(self._schema)
            return validator_for(self._schema, offline=True)  # a `$ref` to outside is an error, never fetched
        except (ValueError, RecursionError) as error:  # ValidationError is a ValueError
            reason = error.message if isinstance(error, ValidationError) else str(error)
            logger.warning("arguments of %r are not checked, its inputSchema: %r", self._tool_key, _shortened(reason))
            return None

    def _problems(self, validator: Validator, arguments: Json) -> list[str]:
        # The explanation lists every single mismatch before it gives the first one: for a million wrong
        # values that took 26 s and 3 GB, where the plain yes or no took 0.2 ms.
        if _values(arguments, MAX_EXPLAINED_VALUES) > MAX_EXPLAINED_VALUES:
            return ["the arguments hold too many values to say where"]
        errors = list(islice(validator.iter_errors(arguments), MAX_PROBLEMS + 1))
        problems = [f"`{_path(error.instance_path)}`: {_shortened(error.message)}" for error in errors[:MAX_PROBLEMS]]
        return [*problems, "and more"] if len(errors) > MAX_PROBLEMS else problems

    def _mismatch(self, problems: list[str]) -> InvalidArguments:
        listed = "\n".join(f"- {problem}" for problem in problems)
        return InvalidArguments(
            f"The arguments do not fit `{self._tool_key}`, and nothing was sent:\n{listed}\n"
            f"Correct them and call again. The tool's inputSchema:\n{self._shown_schema()}"
        )

    def _shown_schema(self) -> str:
        text = msgspec.json.encode(self._schema).decode()
        if len(text) <= MAX_SHOWN_SCHEMA_CHARS:
            return text
        return f"{text[:MAX_SHOWN_SCHEMA_CHARS]}... (cut: it has {len(text)} characters)"


def _refuse_costly(schema: Json) -> None:
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise ValueError(f"larger than {MAX_SCHEMA_BYTES} bytes")
    if expansion(schema) > MAX_EXPANSION:
        raise ValueError(f"holds one value against more than {MAX_EXPANSION} sub-schemas")


def expansion(schema: Json) -> int:
    """How many sub-schemas one and the same value meets, counted up to just above MAX_EXPANSION.

    Thirty definitions that each name the next one twice are small to send and take half a minute to evaluate.
    What a recursive schema costs over the depth of the arguments is not counted.
    """
    counter = _Expansion(schema)
    return max((counter.of(part) for part in _parts(schema)), default=0)


class _Expansion:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        known = self._known.get(id(schema))
        if known is not None:
            return known
        self._known[id(schema)] = MAX_EXPANSION + 1  # holds while we are inside: a circle has no end
        total = 1
        for part in self._in_place(schema):
            total += self.of(part)
            if total > MAX_EXPANSION:
                break
        self._known[id(schema)] = total
        return total

    def _in_place(self, schema: Json) -> list[Any]:
        parts: list[Any] = [schema[key] for key in _IN_PLACE if key in schema]
        for key in _IN_PLACE_LISTS:
            if isinstance(schema.get(key), list):
                parts.extend(schema[key])
        for key in _IN_PLACE_MAPS:
            if isinstance(schema.get(key), dict):
                parts.extend(schema[key].values())
        references = (schema.get("$ref"), schema.get("$dynamicRef"))
        parts.extend(self._target(reference) for reference in references if isinstance(reference, str))
        return parts

    def _target(self, reference: str) -> Any:
        """What a reference inside the schema points to; for others (anchors, ids) the whole, to be on the safe side."""
        if not reference.startswith("#/"):
            return self._root
        target: Any = self._root
        for step in reference[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(key)
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                return None
        return target


def _parts(schema: Any) -> list[Json]:
    """Every object inside the schema, itself included. More than are schemas, which does no harm."""
    found: list[Json] = []
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            found.append(part)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return found


def _values(arguments: Any, enough: int) -> int:
    """How many values the arguments hold, at any depth; stops counting above `enough`."""
    count = 0
    waiting = [arguments]
    while waiting and count <= enough:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(islice(value, enough + 1))
    return count


def _path(steps: list[str | int]) -> str:
    """`filter.ids[3]`; the arguments as a whole: `arguments`."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return _shortened(path) or "arguments"


def _shortened(text: str) -> str:
    """Head and tail: messages name the value first and the reason last."""
    if len(text) <= MAX_PROBLEM_CHARS:
        return text
    half = MAX_PROBLEM_CHARS // 2
    return f"{text[:half]} ... {text[-half:]}"
