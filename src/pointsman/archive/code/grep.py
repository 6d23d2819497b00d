"""Searches the text of a project with ripgrep; each match comes with the lines around it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.archive.code import guard, ripgrep
from pointsman.archive.code.globs import Glob
from pointsman.archive.code.ripgrep import COUNT_TO, Search
from pointsman.archive.code.roots import Root, all_roots, require_folder
from pointsman.archive.code.secret_names import is_blocked

COUNT_S = 1.0  # time to count, once there are enough matches to show
HARD_S = 3.0
LOCATE_S = 1.0  # at least, to locate the matches in a few files
CONTEXT = 2
WIDTH = 400  # characters of a line that are shown


class PatternError(Exception):
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
class GrepResult:
    matches: tuple[Match, ...]
    total: int
    total_capped: bool
    files: int  # that were searched
    took_ms: int


def grep(roots: Mapping[str, Path], pattern: str, glob: Glob | None, case_sensitive: bool, limit: int) -> GrepResult:
    """Search all roots, one after the other, within one time limit.

    Raises:
        NoRootsError: there is none.
        RootGoneError: the folder of one does not exist.
        PatternError: it is not a valid regular expression.
        RipgrepMissingError: ripgrep is not installed.
    """
    if "\0" in pattern:
        raise PatternError("write a zero byte as \\x00")
    began = time.monotonic()
    search = Search(pattern, case_sensitive)
    matches: list[Match] = []
    total, capped, files = 0, False, 0
    for root in map(require_folder, all_roots(roots)):
        counter = _Counter(root, glob, limit - total, COUNT_TO - total, began)
        hidden, names = (glob.wants_hidden, glob.names) if glob else (False, ())
        code = ripgrep.run(root.folder, search.count_command(hidden, names), counter)
        if code == 2 and not counter.total and (reason := search.pattern_error()):
            raise PatternError(reason)
        located = _locate(root, search, counter.first(limit - len(matches)), limit - len(matches), began)
        matches += located.matches
        capped |= code is None or located.timed_out
        total += min(counter.total, COUNT_TO - total) - located.gone
        files += counter.files
    return GrepResult(tuple(matches), total, capped, files, round((time.monotonic() - began) * 1000))


class _Counter:
    """Counts matches per file until there are enough. Files that are blocked or do not match the glob do not count."""

    def __init__(self, root: Root, glob: Glob | None, enough: int, most: int, began: float) -> None:
        self.total = 0
        self.files = 0
        self._matching: dict[str, int] = {}
        self._glob = glob.below(root.name) if glob else None
        self._enough, self._most, self._began = enough, most, began
        self._rest = b""

    def feed(self, data: bytes) -> bool:
        found, self._rest = ripgrep.counts(self._rest + data)
        for raw, count in found:
            path = self._searched_path(raw)
            self.files += path is not None
            if path is not None and count:
                self._matching[path] = count
                self.total += count
        return self.total <= self._most

    def deadline(self) -> float:
        return self._began + (COUNT_S if self.total >= self._enough else HARD_S)

    def first(self, wanted: int) -> dict[str, int]:
        """The first files by name that together have `wanted` matches."""
        files: dict[str, int] = {}
        for path in sorted(self._matching):
            if wanted <= 0:
                break
            files[path] = self._matching[path]
            wanted -= files[path]
        return files

    def _searched_path(self, raw: bytes) -> str | None:
        try:
            path = raw.decode()
        except UnicodeDecodeError:
            return None  # read_file could not take this name
        if (self._glob is not None and not self._glob.matches(path)) or is_blocked(path.split("/")):
            return None
        return path


class _Locator:
    """Collects the positions of matches."""

    def __init__(self, began: float) -> None:
        self.places: dict[str, list[tuple[int, int]]] = {}
        self._until = max(began + HARD_S, time.monotonic() + LOCATE_S)
        self._rest = b""

    def feed(self, data: bytes) -> bool:
        found, self._rest = ripgrep.places(self._rest + data)
        for raw, line, byte in found:
            self.places.setdefault(raw.decode(errors="replace"), []).append((line, byte))
        return True

    def deadline(self) -> float:
        return self._until


@dataclass(frozen=True, slots=True)
class _Located:
    matches: Sequence[Match] = ()
    gone: int = 0  # were counted, but have disappeared since
    timed_out: bool = False


def _locate(root: Root, search: Search, files: dict[str, int], wanted: int, began: float) -> _Located:
    """The first matches in some files, with their lines."""
    if not files:
        return _Located()
    locator = _Locator(began)
    timed_out = ripgrep.run(root.folder, search.locate_command(list(files)), locator) is None
    matches: list[Match] = []
    gone = sum(files.values())
    for path in files:
        lines = _lines(root, path)
        here = [place for place in locator.places.get(path, ()) if place[0] <= len(lines)]
        matches += [_match(root, path, line, byte, lines) for line, byte in here[: wanted - len(matches)]]
        gone -= len(here)
    return _Located(matches, 0 if timed_out else max(0, gone), timed_out)


def _lines(root: Root, path: str) -> list[bytes]:
    """The lines as ripgrep counts them; none for a file that may not be read or turns out to be binary."""
    try:
        content = guard.read(root.folder, path).content
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            content = content.decode("utf-16", errors="replace").encode()
    except (guard.AccessDeniedError, guard.PathNotFoundError):
        return []
    return [] if b"\0" in content else content.removeprefix(b"\xef\xbb\xbf").split(b"\n")


def _match(root: Root, path: str, line: int, byte: int, lines: list[bytes]) -> Match:
    at = line - 1
    column = len(lines[at][: byte - 1].decode(errors="replace"))
    return Match(
        file=root.display_path(path),
        line=line,
        column=column + 1,
        text=_cut(lines[at], column),
        before=tuple(_cut(line) for line in lines[max(0, at - CONTEXT) : at]),
        after=tuple(_cut(line) for line in _following(lines, at)),
    )


def _following(lines: list[bytes], at: int) -> Iterator[bytes]:
    for number in range(at + 1, min(at + 1 + CONTEXT, len(lines))):
        if number < len(lines) - 1 or lines[number]:  # there is no line after the last line end
            yield lines[number]


def _cut(line: bytes, column: int = 0) -> str:
    """A line, or the part of a very long one around the match."""
    text = line.removesuffix(b"\r").decode(errors="replace")
    if len(text) <= WIDTH:
        return text
    start = max(0, min(column - WIDTH // 4, len(text) - WIDTH))
    part = text[start : start + WIDTH]
    return ("…" if start else "") + part + ("…" if start + WIDTH < len(text) else "")
