"""Bounds what checking arguments against a JSON Schema can cost, from the schema alone and before it is compiled.

Recursion through `anyOf`, `oneOf`, `allOf` and `$ref` multiplies: thirty definitions that name the next one twice are
small to send and take hours to evaluate. The bound counts how often one value may be visited at worst. It is an upper
bound: a schema without one may still be cheap, so its arguments are checked in a process that can be killed.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, field

from pointsman.core.model import Json

MAX_VISITS = 1_000_000  # of one value; above that there is no bound
MAX_PATTERN_COST = 10_000  # of all patterns together: compiling them takes about a microsecond each
BACKTRACK_LIMIT = 20_000  # steps of a pattern with lookaround, for one string
BACKTRACK_COST = 100_000  # what that limit costs, in visits of a plain value
_MAX_STEPS = 12_000  # of the analysis itself
_MAX_ROUNDS = 6

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")  # evaluated more than once
_BACKTRACKS = re.compile(r"\(\?[=!<]|\\[1-9k]")
_REPEATED = re.compile(r"(\)?)\{(\d+)(?:,(\d*))?\}")
_COMPARED_BY_HASH = (str, int)  # an enum of only strings or only numbers; others are compared one by one


class CheckCost(Struct, frozen=True):
    """The worst-case cost of a check, in visits of one plain value (about 10 ns each)."""

    per_value: int
    per_byte: int  # patterns
    quadratic: bool  # whether it may also grow with the square of the arguments' size


def bound_cost(schema: Json) -> CheckCost | None:
    """The cost of a check, None if no useful bound is known."""
    try:
        return _Analysis(schema).cost()
    except (_UnboundedError, RecursionError):
        return None


class _UnboundedError(Exception):
    pass


class _Node(Struct):
    """A sub-schema: the sub-schemas that apply to the same value, and those that apply to the values inside it."""

    weight: int
    backtracks: bool
    in_place: list[int] = field(default_factory=list)
    inside: list[tuple[str, int]] = field(default_factory=list)  # slot (see `_add_inside`) and sub-schema


class _Analysis:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._nodes: dict[int, _Node] = {}  # each before those that refer to it, except in cycles
        self._open: set[int] = set()
        self._circular = False
        self._steps = 0
        self._pattern_cost = 0
        self._quadratic = False

    def cost(self) -> CheckCost:
        self._enter(self._root)
        reach = self._reach()
        per_byte = reach * self._pattern_cost // 5
        if any(node.backtracks for node in self._nodes.values()):
            for node in self._nodes.values():
                node.weight += BACKTRACK_COST * node.backtracks
            reach = self._reach()
        return CheckCost(reach, per_byte, self._quadratic)

    def _enter(self, schema: Any) -> int:
        """Add a sub-schema and all that it refers to. Booleans and invalid values weigh nothing."""
        known = id(schema)
        if not isinstance(schema, dict) or known in self._nodes:
            return known
        if known in self._open:
            self._circular = True
            return known
        self._step(1 + len(schema))
        if schema is not self._root and isinstance(schema.get("$id", schema.get("id")), str):
            raise _UnboundedError  # references inside it have another base
        if any(key in schema for key in _UNSUPPORTED):
            raise _UnboundedError
        self._open.add(known)
        node = _Node(self._weight(schema), self._add_pattern(schema.get("pattern")))
        self._add_in_place(schema, node)
        self._add_inside(schema, node)
        self._nodes[known] = node
        return known

    def _add_in_place(self, schema: Json, node: _Node) -> None:
        parts: list[Any] = [schema[key] for key in _IN_PLACE if key in schema]
        for key in _IN_PLACE_LISTS:
            parts.extend(_list(schema.get(key)))
        for key in ("dependentSchemas", "dependencies"):
            parts.extend(_dict(schema.get(key)).values())
        if "$ref" in schema:
            parts.append(self._target(schema["$ref"]))
        node.in_place = [self._enter(part) for part in parts if isinstance(part, dict)]

    def _add_inside(self, schema: Json, node: _Node) -> None:
        """A property is visited by the slots `p:<name>` and `p*`, an array's entry by `i:<index>` and `i*`."""
        inside: list[tuple[str, Any]] = [(f"p:{name}", part) for name, part in _dict(schema.get("properties")).items()]
        for pattern, part in _dict(schema.get("patternProperties")).items():
            if self._add_pattern(pattern):
                raise _UnboundedError
            inside.append(("p*", part))
        items = schema.get("items")
        first = schema.get("prefixItems", items if isinstance(items, list) else None)
        inside.extend((f"i:{index}", part) for index, part in enumerate(_list(first)))
        inside.extend(("i*", schema.get(key)) for key in ("items", "additionalItems", "contains"))
        inside.append(("p*", schema.get("additionalProperties")))
        inside.append(("n*", schema.get("propertyNames")))
        node.inside = [(slot, self._enter(part)) for slot, part in inside if isinstance(part, dict)]

    def _weight(self, schema: Json) -> int:
        weight = 1 + len(schema) + len(_list(schema.get("required"))) + len(_dict(schema.get("properties")))
        weight += sum(len(_list(names)) for names in _dict(schema.get("dependentRequired")).values())
        weight += sum(self._comparison(schema[key]) for key in ("enum", "const") if key in schema)
        if schema.get("uniqueItems") is True:
            self._quadratic = True
        return weight

    def _comparison(self, compared: Any) -> int:
        options = compared if isinstance(compared, list) else [compared]
        if any(all(type(option) is kind for option in options) for kind in _COMPARED_BY_HASH):
            return 0
        count, waiting = 0, [compared]
        while waiting:
            part = waiting.pop()
            count += 1
            self._step(1)
            waiting.extend(part.values() if isinstance(part, dict) else _list(part))
        return 10 * count

    def _add_pattern(self, pattern: Any) -> bool:
        """Add a pattern's cost; return whether it backtracks."""
        if not isinstance(pattern, str):
            return False
        self._pattern_cost += pattern_cost(pattern)
        if self._pattern_cost > MAX_PATTERN_COST:
            raise _UnboundedError
        backtracks = _BACKTRACKS.search(pattern) is not None
        self._quadratic = self._quadratic or backtracks
        return backtracks

    def _target(self, reference: Any) -> Any:
        """The target of a reference inside the schema. Raises _UnboundedError for anchors, ids and other documents."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise _UnboundedError
        target: Any = self._root
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(key)
            elif isinstance(target, list) and key.isdecimal() and len(key) < 9 and int(key) < len(target):
                target = target[int(key)]
            else:
                return None
        return target

    def _reach(self) -> int:
        """How often one and the same value is visited, at any depth.

        For cycles of references, the numbers are raised until they reach a fixed point, which does not exist if a
        cycle multiplies.
        """
        visits: dict[int, int] = dict.fromkeys(self._nodes, 0)
        slots: dict[int, dict[str, int]] = {known: {} for known in self._nodes}
        reach: dict[int, int] = dict.fromkeys(self._nodes, 0)
        for _ in range(_MAX_ROUNDS):
            stable = True
            for known, node in self._nodes.items():
                visits[known] = node.weight + sum(visits[part] for part in node.in_place)
                slots[known] = self._slots(node, slots, reach)
                now = max(visits[known], *_by_value(slots[known]))
                if now > MAX_VISITS:
                    raise _UnboundedError
                stable = stable and now == reach[known]
                reach[known] = now
            if stable or not self._circular:
                return reach[id(self._root)]
        raise _UnboundedError

    def _slots(self, node: _Node, slots: dict[int, dict[str, int]], reach: dict[int, int]) -> dict[str, int]:
        total: dict[str, int] = {}
        for slot, part in node.inside:
            total[slot] = total.get(slot, 0) + reach[part]
        for part in node.in_place:
            for slot, count in slots[part].items():
                total[slot] = total.get(slot, 0) + count
            self._step(len(slots[part]))
        self._step(1 + len(node.inside))
        return total

    def _step(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise _UnboundedError


def _by_value(slots: dict[str, int]) -> list[int]:
    """How often the values in each slot are visited, including by the slots for every name or index."""
    return [count + (0 if slot[1] == "*" else slots.get(f"{slot[0]}*", 0)) for slot, count in slots.items()] or [0]


def pattern_cost(pattern: str) -> int:
    """An upper estimate of the size of a compiled pattern: the compiler unrolls repetitions."""
    size = 1 + len(pattern) + 5 * (pattern.count("[") + pattern.count(".") + pattern.count("\\"))
    size += 300 * (pattern.count("\\p") + pattern.count("\\P"))  # a class of Unicode has hundreds of ranges
    longest, nested = 1, 1
    for group, low, high in _REPEATED.findall(pattern):
        times = max(1, int(low[:6]), int(high[:6] or 0))
        if group:
            nested *= times
        else:
            longest = max(longest, times)
    return size * longest * nested


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
