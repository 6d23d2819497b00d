"""Glob patterns for files as ripgrep reads them (`*`, `**`, `?`, `[a-z]`, `{a,b}`), matched in linear steps.

They are matched here and not by ripgrep's `-g`, because one such glob that fits lets in again what .gitignore excludes.
"""

from __future__ import annotations

import fnmatch
import re
from copy import copy

from pointsman.archive.code.guard import ABSOLUTE, OUTSIDE, is_absolute
from pointsman.archive.code.secret_names import is_blocked

MAX_LENGTH = 1_000
_MOST_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


class GlobError(ValueError):
    """The pattern cannot be understood; the message says why."""


class Glob:
    def __init__(self, pattern: str) -> None:
        if not pattern.strip():
            raise GlobError("it is empty")
        if len(pattern) > MAX_LENGTH or not pattern.isprintable():
            raise GlobError(f"it must be at most {MAX_LENGTH} printable characters")
        if is_absolute(pattern):
            raise GlobError(ABSOLUTE)
        if ".." in pattern.split("/"):
            raise GlobError(OUTSIDE)
        if "\\" in pattern:
            raise GlobError("use / between folders; a backslash is not understood")
        if pattern.startswith(("!", "-")):
            raise GlobError("it must name files below the project's root, such as src/**/*.ts")
        alternatives = [_parts(each) for each in _expanded(pattern.removeprefix("./"))]
        self.sensitive = all(map(is_blocked, alternatives))  # names nothing but what is never searched
        self.wants_hidden = any(part.startswith(".") for parts in alternatives for part in parts)
        self.names = [parts[-1] for parts in alternatives]
        self._alternatives = alternatives
        self._matchers = [_Matcher(parts) for parts in alternatives]

    def below(self, root: str) -> Glob:
        """The same, where a pattern may also begin with the name of the root that paths are relative to."""
        here = copy(self)
        named = [parts[1:] for parts in self._alternatives if len(parts) > 1 and parts[0] == root]
        here._matchers = [*self._matchers, *map(_Matcher, named)]
        return here

    def fits(self, path: str) -> bool:
        parts = path.split("/")
        return any(each.fits(parts) for each in self._matchers)


def _parts(pattern: str) -> list[str]:
    """A pattern without braces in pieces. Without a slash it fits a file of that name in any folder."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")] or ["**"]
    if pattern.endswith("/"):
        parts.append("**")
    return parts if len(parts) > 1 else ["**", *parts]


class _Matcher:
    def __init__(self, parts: list[str]) -> None:
        self._parts = [None if part == "**" else _compiled(part) for part in parts]
        self._any_folder = len(parts) == 2 and self._parts[0] is None

    def fits(self, parts: list[str]) -> bool:
        """Which beginnings of the path fit what of the pattern has been looked at, part by part."""
        if self._any_folder and (name := self._parts[1]) is not None:  # the commonest kind: **/*.ts
            return name.match(parts[-1]) is not None
        reached = {0}
        for wanted in self._parts:
            if wanted is None:
                reached = set(range(min(reached), len(parts) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(parts) and wanted.match(parts[at])}
            if not reached:
                return False
        return len(parts) in reached


def _compiled(part: str) -> re.Pattern[str]:
    if part.count("[") != part.count("]"):
        raise GlobError(f"a bracket in `{part}` is not closed")
    return re.compile(fnmatch.translate(part.replace("[^", "[!").replace("**", "*")))


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
            raise GlobError(f"its braces stand for more than {_MOST_ALTERNATIVES} patterns")
    if any("{" in each or "}" in each for each in done):
        raise GlobError("a brace is not closed")
    return done
