"""Patterns over tool keys, such as `github:get_*` and `!*:delete_*`: their form, and what they match.

`*` stands for any characters, and is the only wildcard. A pattern is compiled once; a match takes one pass over the
name for each pattern, so neither a pattern nor a name can make it costly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

MAX_PATTERNS = 100
MAX_PATTERN_CHARS = 200
MAX_NAME_CHARS = 512  # of a tool; a longer name is outside of every list of patterns
EXCLUDE = "!"
_WILDCARD = "*"
_SERVER = re.compile(r"[A-Za-z0-9_*-]+")
_OTHER_WILDCARDS = frozenset("?[]{}")


def check_pattern(text: str) -> str:
    """Raises ValueError, with the next step."""
    body = text.removeprefix(EXCLUDE)
    if len(text) > MAX_PATTERN_CHARS:
        raise ValueError(f"has {len(text)} characters, but a pattern may have {MAX_PATTERN_CHARS}")
    if body == _WILDCARD:
        return text
    server, colon, tool = body.partition(":")
    if not colon and _SERVER.fullmatch(server):  # no error repeats the text, which may come from the environment
        raise ValueError(
            "needs a server and a tool; write `*:TOOL` for a tool of any server, or `SERVER:*` for all its tools"
        )
    if not _SERVER.fullmatch(server) or not tool or tool != tool.strip() or not tool.isprintable():
        raise ValueError("must be a pattern such as `github:get_*`, `*:read_*` or `!github:delete_*`")
    if _OTHER_WILDCARDS.intersection(tool):
        raise ValueError("has another wildcard than `*`, which stands for any characters")
    return text


def check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError. An empty list is no list: it could mean all tools or none."""
    if not patterns:
        raise ValueError('is an empty list; leave it out for all tools, or write ["!*"] for none')
    if len(patterns) > MAX_PATTERNS:
        raise ValueError(f"has {len(patterns)} patterns, but may have {MAX_PATTERNS}; use `*` to join some")
    return patterns


def named_server(pattern: str) -> str | None:
    """The one server that a pattern names; None: it may fit several."""
    server = pattern.removeprefix(EXCLUDE).partition(":")[0]
    return None if _WILDCARD in server else server


class ToolPatterns:
    """A list of patterns. A tool fits it if one without `!` matches, or there is none, and none with `!` does."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [_Pattern.parse(text) for text in patterns]
        self._includes = any(not pattern.exclude for pattern in self._patterns)

    def of_server(self, server_id: str) -> NamePatterns:
        """What the list says about the names of one server's tools."""
        here = [pattern for pattern in self._patterns if pattern.server.matches(server_id)]
        excluded = _NameSet.of(pattern.tool for pattern in here if pattern.exclude)
        if not self._includes:
            return NamePatterns(None, excluded)
        return NamePatterns(_NameSet.of(pattern.tool for pattern in here if not pattern.exclude), excluded)


class Glob(Struct, frozen=True):
    """The texts between the wildcards; a single one is the whole name."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Glob:
        return cls(tuple(re.sub(r"\*+", _WILDCARD, text).split(_WILDCARD)))

    def matches(self, name: str) -> bool:
        first, *middle = self.parts
        if not middle:
            return name == first
        last = middle.pop()
        end = len(name) - len(last)
        if end < len(first) or not name.startswith(first) or not name.endswith(last):
            return False
        at = len(first)
        for part in middle:  # the leftmost place leaves the most room for the others
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


class _Pattern(Struct, frozen=True):
    exclude: bool
    server: Glob
    tool: Glob

    @classmethod
    def parse(cls, text: str) -> _Pattern:
        body = text.removeprefix(EXCLUDE)
        server, _, tool = body.partition(":")
        return cls(body != text, Glob.parse(server), Glob.parse(tool or _WILDCARD))


class _NameSet(Struct, frozen=True):
    """The names that at least one of some patterns matches."""

    exact: frozenset[str]
    globs: tuple[Glob, ...]

    @classmethod
    def of(cls, globs: Iterable[Glob]) -> _NameSet:
        unique = tuple(dict.fromkeys(globs))
        exact = frozenset(glob.parts[0] for glob in unique if len(glob.parts) == 1)
        return cls(exact, tuple(glob for glob in unique if len(glob.parts) > 1))

    @property
    def empty(self) -> bool:
        return not self.exact and not self.globs

    @property
    def everything(self) -> bool:
        return any(glob.parts == ("", "") for glob in self.globs)

    def has(self, name: str) -> bool:
        return name in self.exact or any(glob.matches(name) for glob in self.globs)


class NamePatterns(Struct, frozen=True):
    """What a list of patterns leaves of one server's tools."""

    included: _NameSet | None  # None: all that are not excluded
    excluded: _NameSet

    @property
    def leaves_all(self) -> bool:
        return self.excluded.empty and (self.included is None or self.included.everything)

    @property
    def leaves_none(self) -> bool:
        return self.excluded.everything or (self.included is not None and self.included.empty)

    def leaves(self, name: str) -> bool:
        if len(name) > MAX_NAME_CHARS or self.excluded.has(name):
            return False
        return self.included is None or self.included.has(name)
