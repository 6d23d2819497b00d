"""One table of a TOML file, such as `[mcp_servers.pointsman]`: added or removed; all else stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[ \t]*\[[^\n]*")


class TomlError(Exception):
    """The table cannot be changed safely. `str(error)` says why."""


def put(text: str, section: str, key: str, value: Mapping[str, Any]) -> str:
    """Set the table `section.key`: in its place if there is one, otherwise at the end of the file."""
    newline = "\r\n" if "\r\n" in text else "\n"
    table = rendered(section, key, value).replace("\n", newline)
    span = _span(text, section, key)
    if span is not None:
        start, end = span
        return text[:start] + table + text[end:]
    if text and not text.endswith("\n"):
        text += newline
    return f"{text}{newline if text.strip() else ''}{table}"


def drop(text: str, section: str, key: str) -> str:
    """Raises TomlError."""
    span = _span(text, section, key)
    if span is None:
        raise TomlError(f"`{section}.{key}` is not written as a table of its own; edit the file by hand")
    start, end = span
    before, after = text[:start], text[end:]
    if not after.strip():  # it was the last one: the blank line before it came with it
        before = before.rstrip("\r\n") + ("\n" if before.strip() else "")
    return before + after


def rendered(section: str, key: str, value: Mapping[str, Any]) -> str:
    lines = [f"[{section}.{_key(key)}]"]
    lines += [f"{_key(name)} = {_inline(item)}" for name, item in value.items()]
    return "\n".join(lines) + "\n"


def _span(text: str, section: str, key: str) -> tuple[int, int] | None:
    """From the header of the table to the end of its last line, with its sub-tables; None: there is none."""
    name = rf"{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}'"
    own = re.compile(rf"[ \t]*\[[ \t]*{re.escape(section)}[ \t]*\.[ \t]*(?:{name})[ \t]*(?:\.[^\n]*)?\]")
    start = end = None
    position = 0
    inside = False
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            inside = own.match(line) is not None
            if inside and start is None:
                start = position
        position += len(line)
        if inside and line.strip() and not line.lstrip().startswith("#"):
            end = position  # comments and blank lines at the end belong to the next table
    return (start, end) if start is not None and end is not None else None


def _key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else _string(text)


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_inline(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return json.dumps(value)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
