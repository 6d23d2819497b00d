"""Searches the text of a project with ripgrep, and shows each match with the lines round it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pointsman.archive.code import guard, ripgrep
from pointsman.archive.code.globs import Glob
from pointsman.archive.code.roots import Root, all_roots, present
from pointsman.archive.code.secret_names import is_blocked

COUNT_TO = 10_000
COUNT_S = 1.0  # once enough is found, count on for so long
HARD_S = 3.0
CONTEXT = 2
WIDTH = 400  # characters of a line that are shown
_MOST_FILES = 500_000


class BadPattern(Exception):
    """Ripgrep cannot compile the pattern; the message says why."""


@dataclass(frozen=True, slots=True)
class Match:
    file: str
    line: int
    column: int  # in characters, from 1
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    matches: tuple[Match, ...]
    total: int
    total_capped: bool
    files: int
    files_capped: bool
    took_ms: int


def grep(roots: Mapping[str, Path], pattern: str, glob: Glob | None, case_sensitive: bool, limit: int) -> Found:
    """Search all roots, one after the other, within one time limit.

    Raises:
        NoRoots: there is none.
        RootGone: the folder of one is not there.
        BadPattern: it is no regular expression.
        NoRipgrep: the program is missing.
    """
    began = time.monotonic()
    places: list[tuple[Root, _Place]] = []
    places_capped, files, files_capped = False, 0, False
    for root in map(present, all_roots(roots)):
        chosen = _Chosen(root, glob)
        found = _Places(chosen, limit - len(places), COUNT_TO - len(places), began)
        listed = _Listed(chosen, began)
        scope = ripgrep.Scope(root.folder, glob is not None and glob.wants_hidden, glob.names if glob else ())
        commands: list[tuple[list[str], ripgrep.Taker]] = [
            (ripgrep.search_command(scope, pattern, case_sensitive), found),
            (ripgrep.files_command(scope), listed),
        ]
        codes = ripgrep.run(root.folder, commands)
        if codes[0] == 2 and not found.places and (reason := ripgrep.what_is_wrong(pattern)):
            raise BadPattern(reason)
        places += [(root, place) for place in sorted(found.places)]
        places_capped |= codes[0] is None or found.full
        files_capped |= codes[1] is None
        files += listed.count
    matches, gone = _shown(places, limit)
    took_ms = round((time.monotonic() - began) * 1000)
    return Found(matches, len(places) - gone, places_capped, files, files_capped, took_ms)


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    path: str
    line: int
    byte: int


class _Chosen:
    """Which files of those that ripgrep names are meant and may be shown. Matches come in rows: the last is kept."""

    def __init__(self, root: Root, glob: Glob | None) -> None:
        self._root = root
        self._glob = glob
        self._last: tuple[bytes, str | None] = (b"", None)

    def path(self, raw: bytes) -> str | None:
        if raw != self._last[0]:
            self._last = (raw, self._judged(raw))
        return self._last[1]

    def _judged(self, raw: bytes) -> str | None:
        try:
            path = raw.decode()
        except UnicodeDecodeError:
            return None  # nobody could ask for it by this name
        if is_blocked(path.split("/")):
            return None
        if self._glob is None or self._glob.fits(path) or self._glob.fits(f"{self._root.name}/{path}"):
            return path
        return None


class _Places:
    """Takes the places of matches until there are enough."""

    def __init__(self, chosen: _Chosen, enough: int, most: int, began: float) -> None:
        self.places: list[_Place] = []
        self.full = most <= 0
        self._chosen, self._enough, self._most, self._began = chosen, enough, most, began
        self._rest = b""

    def take(self, data: bytes) -> bool:
        found, self._rest = ripgrep.hits(self._rest + data)
        for raw, line, byte in found:
            if len(self.places) >= self._most:
                self.full = True
                return False
            if (path := self._chosen.path(raw)) is not None:
                self.places.append(_Place(path, line, byte))
        return True

    def deadline(self) -> float:
        return self._began + (COUNT_S if len(self.places) >= self._enough else HARD_S)


class _Listed:
    """Counts the files that are searched."""

    def __init__(self, chosen: _Chosen, began: float) -> None:
        self.count = 0
        self._chosen, self._began = chosen, began
        self._rest = b""

    def take(self, data: bytes) -> bool:
        *whole, self._rest = (self._rest + data).split(b"\0")
        self.count += sum(self._chosen.path(raw.removeprefix(b"./")) is not None for raw in whole)
        return self.count < _MOST_FILES

    def deadline(self) -> float:
        return self._began + HARD_S


def _shown(places: list[tuple[Root, _Place]], limit: int) -> tuple[tuple[Match, ...], int]:
    """The first matches with their lines, and how many places turned out not to be there to be shown."""
    matches: list[Match] = []
    gone = 0
    for (root, path), group in groupby(places, key=lambda each: (each[0], each[1].path)):
        if len(matches) >= limit:
            break
        lines = _lines(root, path)
        for _, place in group:
            if not 0 < place.line <= len(lines):
                gone += 1
            elif len(matches) < limit:
                matches.append(_match(root, place, lines))
    return tuple(matches), gone


def _lines(root: Root, path: str) -> list[bytes]:
    """The lines as ripgrep counts them; none for a file that may not be read, or is binary after all."""
    try:
        content = guard.read(root.folder, path).content
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            content = content.decode("utf-16", errors="replace").encode()
    except (guard.Refused, guard.Missing):
        return []
    return [] if b"\0" in content else content.removeprefix(b"\xef\xbb\xbf").split(b"\n")


def _match(root: Root, place: _Place, lines: list[bytes]) -> Match:
    at = place.line - 1
    column = len(lines[at][: place.byte - 1].decode(errors="replace"))
    return Match(
        file=root.shown(place.path),
        line=place.line,
        column=column + 1,
        text=_cut(lines[at], column),
        before=tuple(_cut(line) for line in lines[max(0, at - CONTEXT) : at]),
        after=tuple(_cut(line) for line in _following(lines, at)),
    )


def _following(lines: list[bytes], at: int) -> Iterator[bytes]:
    for number in range(at + 1, min(at + 1 + CONTEXT, len(lines))):
        if number < len(lines) - 1 or lines[number]:  # behind the last line end there is no line
            yield lines[number]


def _cut(line: bytes, column: int = 0) -> str:
    """A line, or of a very long one the part round the match."""
    text = line.removesuffix(b"\r").decode(errors="replace")
    if len(text) <= WIDTH:
        return text
    start = max(0, min(column - WIDTH // 4, len(text) - WIDTH))
    part = text[start : start + WIDTH]
    return ("…" if start else "") + part + ("…" if start + WIDTH < len(text) else "")
