"""The parameters that a JSON Schema declares, seen through `$ref`, `allOf`, `anyOf` and `oneOf`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import Struct

MAX_SCHEMAS = 64  # visited; definitions that refer to one another could be endless
MAX_WAYS = 6  # returned
MAX_WAYS_COUNTED = 64
MAX_KINDS = 6  # of one parameter
REFERENCES = ("$ref", "$dynamicRef")
ALTERNATIVES = ("anyOf", "oneOf")
THROUGH = frozenset({*REFERENCES, "allOf", *ALTERNATIVES})
_INSIDE = THROUGH | {"properties", "items"}

Names = dict[str, None]  # in order, each once


class Parameters(Struct, frozen=True):
    properties: Mapping[str, Any]  # of all alternatives
    required: Names  # by all alternatives
    ways: tuple[Names, ...] = ()  # alternatives: all names of one of these are required, too
    more_ways: bool = False  # there are more alternatives than returned


def parameters_of(schema: Any, root: Any) -> Parameters:
    """The parameters of a schema. Never raises. References are resolved in `root`; external ones are ignored."""
    if not isinstance(schema, dict):
        return Parameters({}, {})
    if schema.keys().isdisjoint(THROUGH):
        return Parameters(_properties(schema), _required(schema))
    walk = _Walk(root)
    properties, ways = walk.into(schema)
    common = _common(ways)
    others = _distinct({name: None for name in way if name not in common} for way in ways)
    if not all(others):  # one alternative requires nothing else
        others = []
    return Parameters(properties, common, tuple(others[:MAX_WAYS]), walk.cut or len(others) > MAX_WAYS)


def properties_of(schema: Any, root: Any) -> Mapping[str, Any]:
    """The properties of `parameters_of` alone."""
    if isinstance(schema, dict) and schema.keys().isdisjoint(THROUGH):
        return _properties(schema)
    return parameters_of(schema, root).properties


def is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has neither properties nor items, nor leads to any."""
    return schema.keys().isdisjoint(_INSIDE)


def target(reference: Any, root: Any) -> Any:
    """The target of a local reference; None: there is none."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    part = root
    for step in reference[2:].split("/"):
        if not isinstance(part, Mapping):
            return None
        part = part.get(step.replace("~1", "/").replace("~0", "~"))
    return part


_Seen = tuple[dict[str, Any], list[Names]]  # properties, and the ways to give all that is required


class _Walk:
    def __init__(self, root: Any) -> None:
        self.cut = False
        self._root = root
        self._left = MAX_SCHEMAS
        self._inside: set[int] = set()

    def into(self, schema: Any) -> _Seen:
        if not isinstance(schema, dict) or id(schema) in self._inside:
            return {}, [{}]
        if self._left <= 0:
            self.cut = True
            return {}, [{}]
        self._left -= 1
        self._inside.add(id(schema))
        seen: _Seen = dict(_properties(schema)), [_required(schema)]
        for part in self._parts(schema):
            properties, ways = _both(seen, part)
            seen = properties, self._few(ways)
        self._inside.discard(id(schema))
        return seen

    def _few(self, ways: Sequence[Names]) -> list[Names]:
        """The distinct alternatives; if they are too many, only what they have in common."""
        distinct = _distinct(ways)
        if len(distinct) <= MAX_WAYS_COUNTED:
            return distinct
        self.cut = True
        return [_common(distinct)]

    def _parts(self, schema: Mapping[str, Any]) -> list[_Seen]:
        """The sub-schemas that apply at the same time."""
        parts = [self.into(target(schema[key], self._root)) for key in REFERENCES if key in schema]
        parts += map(self.into, _list(schema, "allOf"))
        for key in ALTERNATIVES:
            choices = _list(schema, key)
            if choices:
                properties, ways = _either([self.into(choice) for choice in choices])
                parts.append((properties, self._few(ways)))
        return parts


def _both(one: _Seen, other: _Seen) -> _Seen:
    properties = dict(one[0])
    for name, inner in other[0].items():
        known = properties.get(name)
        properties[name] = {**known, **inner} if isinstance(known, dict) and isinstance(inner, dict) else inner
    return properties, [{**first, **second} for first, second in product(one[1], other[1])]


def _either(choices: Sequence[_Seen]) -> _Seen:
    declared: dict[str, list[Any]] = {}
    for properties, _ in choices:
        for name, inner in properties.items():
            kinds = declared.setdefault(name, [])
            if len(kinds) < MAX_KINDS:
                kinds.append(inner)
    merged = {name: kinds[0] if len(kinds) == 1 else {"anyOf": kinds} for name, kinds in declared.items()}
    return merged, [way for _, ways in choices for way in ways]


def _distinct(ways: Iterable[Names]) -> list[Names]:
    return list({tuple(sorted(way)): way for way in ways}.values())


def _common(ways: Sequence[Names]) -> Names:
    return dict.fromkeys(name for name in ways[0] if all(name in way for way in ways))


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(schema: Mapping[str, Any]) -> Names:
    return dict.fromkeys(name for name in _list(schema, "required") if isinstance(name, str))


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
