"""Walks the files below a folder that can become documents: not hidden, not ignored, not links, of a readable kind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from pointsman.archive.ingest.files import kind_of
from pointsman.archive.ingest.gitignore import Rules, compile_patterns, is_ignored, rules_above, rules_in
from pointsman.archive.ingest.manifest import FILE_NAMES as MANIFESTS

_NEVER = frozenset({"node_modules", "__pycache__"})
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: Path
    below: str  # the path below the ingested folder: "notes/a.md"
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns as in .gitignore: `*.md`, `drafts/`, `/notes/**`. With `include`, all other files are skipped."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def narrowed(self) -> bool:
        return bool(self.include or self.exclude)


EVERYTHING = Selection()


class Walk:
    """`unread` are the folders that could not be read, and why: their documents are not removed."""

    def __init__(self, root: Path, selection: Selection = EVERYTHING) -> None:
        """Raises FilePatternError."""
        self.unread: dict[str, str] = {}
        self._root = root
        self._include = _compile(selection.include)
        self._exclude = _compile(selection.exclude)

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
                    if depth < _MAX_DEPTH and self._is_entered(entry.name, path, rules):
                        yield from self._below(folder / entry.name, f"{path}/", rules, depth + 1)
                elif entry.is_file(follow_symlinks=False) and self._is_wanted(path, rules):
                    seen = entry.stat(follow_symlinks=False)
                    yield FoundFile(folder / entry.name, path, seen.st_size, seen.st_mtime_ns)
            except OSError:
                continue  # removed meanwhile

    def _entries(self, folder: Path, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.unread[prefix.rstrip("/") or "."] = error.strerror or type(error).__name__
            return []

    def _is_entered(self, name: str, path: str, rules: Sequence[Rules]) -> bool:
        if name in _NEVER or is_ignored(rules, f"{path}/"):
            return False
        return self._exclude is None or not self._exclude.match_file(f"{path}/")

    def _is_wanted(self, path: str, rules: Sequence[Rules]) -> bool:
        if path in MANIFESTS or is_ignored(rules, path):
            return False
        if self._exclude is not None and self._exclude.match_file(path):
            return False
        if self._include is not None:
            return self._include.match_file(path)
        return kind_of(path) is not None


def _compile(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    return compile_patterns(patterns) if patterns else None
