"""Typed access to the arguments of a call; errors name the parameter, what it must be and what it is.

A parameter that is null counts as absent; unknown parameters are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pointsman.archive.tools.base import ToolError
from pointsman.core.model import Json

INVALID = "Invalid parameters"
_SHOWN_CHARS = 60
_SHOWN_NAMES = 20


class Arguments:
    """One typed getter for each kind of value. Getters without a default require the parameter.

    `as_object`: how this tool's specification writes errors, see `ToolError`.

    Raises:
        ToolError: from every getter, for an invalid value.
    """

    def __init__(self, given: Json, *, as_object: bool = False, within: str = "") -> None:
        self._given = given
        self._as_object = as_object
        self._within = within  # the path of these arguments inside others, like `queries[0].`

    def has(self, name: str) -> bool:
        return self._given.get(name) is not None

    def text(self, name: str, *, at_least: int = 1, at_most: int | None = None) -> str:
        value = self._given.get(name)
        requirement = f"must be {_size('a string', at_least, at_most, 'character')}"
        if not isinstance(value, str) or len(value) < at_least or (at_most is not None and len(value) > at_most):
            raise self.failure(name, requirement)
        return self._well_formed(name, value)

    def optional_text(self, name: str, *, at_least: int = 1, at_most: int | None = None) -> str | None:
        return self.text(name, at_least=at_least, at_most=at_most) if self.has(name) else None

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self._given.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in allowed:
            raise self.failure(name, f"must be one of {_join(allowed)}")
        return value

    def integer(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        value = self._given.get(name)
        if value is None and default is not None:
            return default
        number = _integer(value)
        if number is None or not low <= number <= high:
            raise self.failure(name, f"must be an integer from {low} to {high}")
        return number

    def number(self, name: str, *, low: float, high: float, default: float | None = None) -> float:
        value = self._given.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.failure(name, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.failure(name, "must be true or false")
        return value

    def texts(self, name: str, *, at_most: int, each_at_most: int | None = None) -> tuple[str, ...]:
        """A list of strings; empty if it is absent."""
        value = self._given.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > at_most:
            raise self.failure(name, f"must be {_size('a list', 0, at_most, 'string')}")
        inner = Arguments(
            {f"{name}[{index}]": entry for index, entry in enumerate(value)},
            as_object=self._as_object,
            within=self._within,
        )
        return tuple(inner.text(f"{name}[{index}]", at_most=each_at_most) for index in range(len(value)))

    def table(self, name: str) -> Json | None:
        """An object with any keys; None if it is absent."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.failure(name, "must be an object")
        return value

    def inside(self, name: str) -> Arguments:
        """The parameters of an optional object."""
        return Arguments(self.table(name) or {}, as_object=self._as_object, within=f"{self._within}{name}.")

    def each(self, name: str, *, at_least: int, at_most: int) -> list[Arguments]:
        """A list of objects, each with its own parameters."""
        value = self._given.get(name)
        if not isinstance(value, list) or not at_least <= len(value) <= at_most:
            raise self.failure(name, f"must be {_size('a list', at_least, at_most, 'object')}")
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                path = f"{name}[{index}]"
                inner = Arguments({path: entry}, as_object=self._as_object, within=self._within)
                raise inner.failure(path, "must be an object")
        return [
            Arguments(entry, as_object=self._as_object, within=f"{self._within}{name}[{index}].")
            for index, entry in enumerate(value)
        ]

    def failure(self, name: str, requirement: str) -> ToolError:
        """The error for an invalid parameter. `requirement` continues its name: `must be true or false`."""
        path = f"{self._within}{name}"
        value = self._given.get(name)
        message = f"`{path}` {requirement}; {'it is missing' if value is None else f'got {_shown(value)}'}."
        details = [{"path": path, "message": message}]
        error = INVALID if self._as_object else f"{INVALID}: {message}"
        return ToolError(error, code="invalid_parameters", as_object=self._as_object, details=details)

    def _well_formed(self, name: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:  # an unpaired surrogate, which no store can write
            raise self.failure(name, "must be well-formed Unicode") from None
        return text


def _integer(value: object) -> int | None:
    """JSON does not distinguish 5 from 5.0. Booleans and strings are not numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _size(what: str, at_least: int, at_most: int | None, unit: str) -> str:
    if at_most is not None:
        return f"{what} of {at_least} to {at_most} {unit}s"
    if at_least > 0:
        return f"{what} of at least {at_least} {unit}{'s' if at_least > 1 else ''}"
    return what


def _join(allowed: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in allowed[:_SHOWN_NAMES])
    return shown + (f" and {len(allowed) - _SHOWN_NAMES} more" if len(allowed) > _SHOWN_NAMES else "")


def _shown(value: Any) -> str:
    if isinstance(value, str) and len(value) > _SHOWN_CHARS:
        return f"a string of {len(value)} characters"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    return json.dumps(value)
