"""The files of a root for the import resolvers: read through the guard, with folder listings cached for one call."""

from __future__ import annotations

import posixpath
from pathlib import Path

from pointsman.archive.code import guard


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, frozenset[str]] = {}

    def file(self, path: str) -> str | None:
        """The path of a file without links; None if there is none that may be read."""
        folder, name = posixpath.split(normalize(path))
        if name not in self._names(folder):
            return None
        try:
            return guard.resolve(self.root, posixpath.join(folder, name))
        except (guard.AccessDeniedError, guard.PathNotFoundError):
            return None

    def first(self, *paths: str) -> str | None:
        return next((found for path in paths if (found := self.file(path))), None)

    def names(self, folder: str) -> list[str]:
        return sorted(self._names(normalize(folder)))

    def text(self, path: str) -> str | None:
        try:
            return guard.read(self.root, path).content.decode("utf-8-sig", errors="replace")
        except (guard.AccessDeniedError, guard.PathNotFoundError):
            return None

    def nearest(self, importer: str, *names: str) -> str | None:
        """The first of these files in the importer's folder, else in the nearest folder above it."""
        for folder in ancestors(importer):
            if found := self.first(*(posixpath.join(folder, name) for name in names)):
                return found
        return None

    def _names(self, folder: str) -> frozenset[str]:
        if folder not in self._folders:
            try:
                self._folders[folder] = frozenset(guard.list_names(self.root, folder))
            except (guard.AccessDeniedError, guard.PathNotFoundError):
                self._folders[folder] = frozenset()
        return self._folders[folder]


def ancestors(path: str) -> list[str]:
    """The folders of a file, from its own up to the root, which is the empty name."""
    folders = []
    while path:
        path = posixpath.dirname(path)
        folders.append(path)
    return folders or [""]


def normalize(path: str) -> str:
    """Remove `.` and `..`; a path that leads out of the root still begins with `..`, which the guard denies."""
    plain = posixpath.normpath(path)
    return "" if plain == "." else plain
