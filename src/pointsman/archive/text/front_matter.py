"""Reads the front matter of a document: YAML between `---`, TOML between `+++`."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pointsman.archive.text.lines import front_matter_end, replace_invalid

MAX_CHARS = 65_536
_MAX_VALUES = 5_000  # a few lines of YAML aliases can expand to millions of values
_MAX_DEPTH = 20

_BRACKET = re.compile(r"[\[\]{}]")


class FrontMatterError(ValueError):
    """The front matter is invalid; the message says where and why."""


def read_front_matter(lines: Sequence[str]) -> dict[str, Any]:
    """The front matter as JSON values; dates become ISO text. Empty if there is none.

    Raises:
        FrontMatterError
    """
    end = front_matter_end(lines)
    if not end:
        return {}
    text = "\n".join(lines[1 : end - 1])
    if len(text) > MAX_CHARS:
        raise FrontMatterError(f"its front matter is longer than {MAX_CHARS} characters")
    return _toml(text) if lines[0].lstrip("\ufeff").startswith("+") else read_yaml(text, first_line=2)


def read_yaml(text: str, *, first_line: int = 1) -> dict[str, Any]:
    """A mapping from untrusted YAML.

    Raises:
        FrontMatterError
    """
    if _brackets_deep(text):
        raise FrontMatterError(f"its brackets are nested deeper than {_MAX_DEPTH} levels")
    try:
        found = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + first_line}: " if mark else ""
        raise FrontMatterError(f"{where}{getattr(error, 'problem', None) or 'this is not YAML'}") from None
    except (ValueError, RecursionError, TypeError, OverflowError) as error:  # 2024-13-45, [[[[..., unhashable keys
        raise FrontMatterError(f"this is not YAML that can be read ({error})") from None
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise FrontMatterError("it must be keys and values, like `title: A title`")
    return _JsonConverter().mapping(found, 0)


def _brackets_deep(text: str) -> bool:
    """Whether brackets are nested too deeply: the parser's time grows with the square of the depth."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest > _MAX_DEPTH


def _toml(text: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FrontMatterError(f"this is not TOML ({error}; lines counted after the first)") from None
    return _JsonConverter().mapping(found, 0)


class _JsonConverter:
    """Converts what the parsers return to JSON values, up to a limit."""

    def __init__(self) -> None:
        self._left = _MAX_VALUES

    def mapping(self, found: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        return {replace_invalid(str(key)): self._value(value, depth + 1) for key, value in found.items()}

    def _value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise FrontMatterError(
                f"it has more than {_MAX_VALUES} values, or is nested deeper than {_MAX_DEPTH} levels"
            )
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if isinstance(value, list | tuple | set):
            return [self._value(item, depth + 1) for item in value]
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, str):
            return replace_invalid(value)  # `"\ud800"` is valid YAML, but a lone surrogate
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        return str(value)
