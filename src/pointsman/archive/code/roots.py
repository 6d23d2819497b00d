"""The roots that the code tools may read. A path begins with a root's name; with only one root the name is optional."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pointsman.archive.code.guard import PathNotFoundError, below_root, checked_parts, is_absolute

T = TypeVar("T")

HOW_TO_SET = (
    "The operator names the folders that may be read in pointsman.yaml, under the archive's own entry: "
    "`servers: {archive: {bundled: archive, roots: {app: /path/to/the/project}}}`. It is read again when it is saved."
)


class NoRootsError(Exception):
    """No folder is configured that the code tools may read."""


class UnknownRootError(PathNotFoundError):
    """There are several roots, and the path begins with none of their names."""


class RootGoneError(PathNotFoundError):
    """The folder of a root does not exist; the message is the root's name."""


@dataclass(frozen=True, slots=True)
class Root:
    name: str
    folder: Path
    is_only: bool  # paths are shown without its name

    def display_path(self, path: str) -> str:
        return path if self.is_only else f"{self.name}/{path}"


def all_roots(roots: Mapping[str, Path]) -> list[Root]:
    if not roots:
        raise NoRootsError
    return [Root(name, folder, len(roots) == 1) for name, folder in sorted(roots.items())]


def in_root(roots: Mapping[str, Path], path: str, do: Callable[[Root, str], T]) -> T:
    """Call `do` with the root that a path means and the path inside it.

    Raises:
        NoRootsError: there is none.
        UnknownRootError: the path begins with the name of none.
        RootGoneError: its folder does not exist.
        AccessDeniedError, PathNotFoundError: what `do` raised, or the path's form alone.
    """
    known = all_roots(roots)
    first, *others = checked_parts(path) or [""]
    rest = "/".join(others) + ("/" if others and path.endswith("/") else "")
    if known[0].is_only:
        try:
            return do(require_folder(known[0]), path)
        except PathNotFoundError:
            if first != known[0].name:
                raise
    for root in known:
        if root.name == first:
            return do(require_folder(root), rest)
    raise UnknownRootError


def relative_to_root(roots: Mapping[str, Path], path: str) -> str | None:
    """The relative form of an absolute path (or glob) inside a root; None for any other.

    Decided by the text of the path alone, so that it reveals nothing about which files exist.
    """
    if not is_absolute(path):
        return None
    form = posixpath.normpath(path)
    for root in sorted(all_roots(roots), key=lambda root: len(root.folder.parts), reverse=True):  # the innermost first
        inside = (below_root(root.folder, form) or "").strip("/")
        if inside:
            return root.display_path(inside)
    return None


def require_folder(root: Root) -> Root:
    if not root.folder.is_dir():
        raise RootGoneError(root.name)
    return root
