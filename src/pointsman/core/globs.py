"""Patterns over tool keys such as `files:delete_*`: `*` stands for any characters, all others for themselves.

A match takes time linear in the text: each part between two stars is searched once, from where the one before ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_PATTERN_CHARS: Final = 256
STAR: Final = "*"


def check_pattern(pattern: str) -> str:
    """Return the pattern. Raises ValueError: it could match no tool key."""
    if not 0 < len(pattern) <= MAX_PATTERN_CHARS or not pattern.isprintable():
        raise ValueError(f"a pattern has 1 to {MAX_PATTERN_CHARS} printable characters")
    if ":" not in pattern and STAR not in pattern:
        raise ValueError("a pattern is over `server:tool`; write `server:*` for all tools of a server")
    return pattern


class Globs:
    """Several patterns, of which one has to match."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        self._whole = frozenset(pattern for pattern in self.patterns if STAR not in pattern)
        self._parts = [pattern.split(STAR) for pattern in self.patterns if STAR in pattern]

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def matches(self, text: str) -> bool:
        return text in self._whole or any(_fits(parts, text) for parts in self._parts)


def _fits(parts: list[str], text: str) -> bool:
    first, *inner, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in inner:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
