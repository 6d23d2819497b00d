"""The files below a folder that can be documents: not hidden, not ignored, not links, of a kind that can be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from pointsman.archive.ingest.files import kind_of
from pointsman.archive.ingest.gitignore import Rules, ignored, rules_above, rules_in
from pointsman.archive.ingest.manifest import FILE_NAMES as MANIFESTS

_NEVER = frozenset({"node_modules", "__pycache__"})
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: Path
    below: str  # the folder that is read: "notes/a.md"
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Globs as in .gitignore: `*.md`, `drafts/`, `/notes/**`. With `include`, other files than these are left out."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def narrowed(self) -> bool:
        return bool(self.include or self.exclude)


EVERYTHING = Selection()


class Walk:
    """`unread` are folders that could not be looked into, and why; what lies in them is not known to be gone."""

    def __init__(self, root: Path, selection: Selection = EVERYTHING) -> None:
        """Raises GlobError."""
        self.unread: dict[str, str] = {}
        self._root = root
        self._include = _globs(selection.include)
        self._exclude = _globs(selection.exclude)

    def __iter__(self) -> Iterator[FoundFile]:
        """In the order of their names."""
        yield from self._below(self._root, "", rules_above(self._root), 0)

    def _below(self, folder: Path, prefix: str, rules: Sequence[Rules], depth: int) -> Iterator[FoundFile]:
        own = rules_in(folder, prefix)
        rules = (*rules, own) if own else rules
        for entry in self._entries(folder, prefix):
            path = prefix + entry.name
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < _MAX_DEPTH and self._entered(entry.name, path, rules):
                        yield from self._below(folder / entry.name, f"{path}/", rules, depth + 1)
                elif entry.is_file(follow_symlinks=False) and self._wanted(path, rules):
                    seen = entry.stat(follow_symlinks=False)
                    yield FoundFile(folder / entry.name, path, seen.st_size, seen.st_mtime_ns)
            except OSError:
                continue  # gone while we looked

    def _entries(self, folder: Path, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.unread[prefix.rstrip("/") or "."] = error.strerror or type(error).__name__
            return []

    def _entered(self, name: str, path: str, rules: Sequence[Rules]) -> bool:
        if name in _NEVER or ignored(rules, f"{path}/"):
            return False
        return self._exclude is None or not self._exclude.match_file(f"{path}/")

    def _wanted(self, path: str, rules: Sequence[Rules]) -> bool:
        if path in MANIFESTS or ignored(rules, path):
            return False
        if self._exclude is not None and self._exclude.match_file(path):
            return False
        if self._include is not None:
            return self._include.match_file(path)
        return kind_of(path) is not None


class GlobError(ValueError):
    """An --include or --exclude that cannot be understood."""


def _globs(patterns: Iterable[str]) -> GitIgnoreSpec | None:
    patterns = tuple(patterns)
    try:
        return GitIgnoreSpec.from_lines(patterns) if patterns else None
    except ValueError:
        raise GlobError(f"Not a pattern: {', '.join(patterns)}. Write them as in .gitignore, like '*.md'.") from None
