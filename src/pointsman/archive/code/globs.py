"""Glob patterns with ripgrep's syntax (`*`, `**`, `?`, `[a-z]`, `{a,b}`), matched in linear time.

They are not passed to ripgrep's `-g`: a file that matches such a glob is searched even if .gitignore excludes it.
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
    """The pattern is invalid; the message says why."""


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
            raise GlobError("use / between folders, not a backslash")
        if pattern.startswith(("!", "-")):
            raise GlobError("it must name files below the project's root, such as src/**/*.ts")
        alternatives = [_parts(each) for each in _expand_braces(pattern.removeprefix("./"))]
        self.sensitive = all(map(is_blocked, alternatives))  # every alternative is never searched
        self.wants_hidden = any(part.startswith(".") for parts in alternatives for part in parts)
        self.names = [parts[-1] for parts in alternatives]
        self._alternatives = alternatives
        self._matchers = [_Matcher(parts) for parts in alternatives]

    def below(self, root: str) -> Glob:
        """The same glob, whose pattern may also begin with the name of the root that paths are relative to."""
        here = copy(self)
        named = [parts[1:] for parts in self._alternatives if len(parts) > 1 and parts[0] == root]
        here._matchers = [*self._matchers, *map(_Matcher, named)]
        return here

    def matches(self, path: str) -> bool:
        parts = path.split("/")
        return any(each.matches(parts) for each in self._matchers)


def _parts(pattern: str) -> list[str]:
    """The components of a pattern without braces. Without a slash it matches a file of that name in any folder."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")] or ["**"]
    if pattern.endswith("/"):
        parts.append("**")
    return parts if len(parts) > 1 else ["**", *parts]


class _Matcher:
    def __init__(self, parts: list[str]) -> None:
        self._parts = [None if part == "**" else _compile(part) for part in parts]
        self._any_folder = len(parts) == 2 and self._parts[0] is None

    def matches(self, parts: list[str]) -> bool:
        """Advance through the pattern and keep the set of path prefixes that match it so far."""
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


def _compile(part: str) -> re.Pattern[str]:
    if part.count("[") != part.count("]"):
        raise GlobError(f"unclosed bracket in `{part}`")
    return re.compile(fnmatch.translate(part.replace("[^", "[!").replace("**", "*")))


def _expand_braces(pattern: str) -> list[str]:
    """`*.{ts,tsx}` is `*.ts` and `*.tsx`."""
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
            raise GlobError(f"its braces expand to more than {_MOST_ALTERNATIVES} patterns")
    if any("{" in each or "}" in each for each in done):
        raise GlobError("unclosed brace")
    return done
