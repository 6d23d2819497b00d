"""Glob patterns for files as ripgrep reads them (`*`, `**`, `?`, `[a-z]`, `{a,b}`), matched in linear steps.

They are matched here and not by ripgrep's `-g`, because one such glob that fits lets in again what .gitignore excludes.
"""

from __future__ import annotations

import fnmatch
import re

MAX_LENGTH = 1_000
_MOST_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


class BadGlob(ValueError):
    """The pattern cannot be understood; the message says why."""


class Glob:
    def __init__(self, pattern: str) -> None:
        if not pattern.strip():
            raise BadGlob("it is empty")
        if len(pattern) > MAX_LENGTH or not pattern.isprintable():
            raise BadGlob(f"it must be at most {MAX_LENGTH} printable characters")
        if "\\" in pattern:
            raise BadGlob("use / between folders; a backslash is not understood")
        if pattern.startswith(("/", "!", "-")) or ".." in pattern.split("/"):
            raise BadGlob("it must name files below the project's root, such as src/**/*.ts")
        self._alternatives = [_Alternative(each) for each in _expanded(pattern.removeprefix("./"))]
        self.wants_hidden = any(each.wants_hidden for each in self._alternatives)
        self.names = [each.name for each in self._alternatives]

    def fits(self, path: str) -> bool:
        parts = path.split("/")
        return any(each.fits(parts) for each in self._alternatives)


class _Alternative:
    """One pattern without braces. Without a slash it fits a file of that name in any folder."""

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part not in ("", ".")] or ["**"]
        if pattern.endswith("/"):
            parts.append("**")
        if len(parts) == 1:
            parts.insert(0, "**")
        self.wants_hidden = any(part.startswith(".") for part in parts)
        self.name = parts[-1]
        self._parts = [None if part == "**" else _compiled(part) for part in parts]

    def fits(self, parts: list[str]) -> bool:
        """Which beginnings of the pattern fit which beginnings of the path: one row for each part of the pattern."""
        reached = {0}
        for wanted in self._parts:
            if wanted is None:
                reached = set(range(min(reached), len(parts) + 1)) if reached else set()
            else:
                reached = {at + 1 for at in reached if at < len(parts) and wanted.match(parts[at])}
        return len(parts) in reached


def _compiled(part: str) -> re.Pattern[str]:
    if part.count("[") != part.count("]"):
        raise BadGlob(f"a bracket in `{part}` is not closed")
    try:
        return re.compile(fnmatch.translate(part.replace("[^", "[!").replace("**", "*")))
    except re.error:
        raise BadGlob(f"`{part}` is not a range of characters") from None


def _expanded(pattern: str) -> list[str]:
    """All that braces stand for: `*.{ts,tsx}` is `*.ts` and `*.tsx`."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        if found := _BRACES.search(each):
            waiting += [
                each[: found.start()] + choice + each[found.end() :] for choice in reversed(found[1].split(","))
            ]
        else:
            done.append(each)
        if len(done) + len(waiting) > _MOST_ALTERNATIVES:
            raise BadGlob(f"its braces stand for more than {_MOST_ALTERNATIVES} patterns")
    if any("{" in each or "}" in each for each in done):
        raise BadGlob("a brace is not closed")
    return done
