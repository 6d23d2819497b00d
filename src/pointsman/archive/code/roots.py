"""Which root a path means: with several roots it begins with the root's name, with one the name may be left out."""

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
    """No folder has been named that the code tools may read."""


class UnknownRootError(PathNotFoundError):
    """There are several roots, and the path begins with the name of none."""


class RootGoneError(PathNotFoundError):
    """The folder of a root is not there; the message is the root's name."""


@dataclass(frozen=True, slots=True)
class Root:
    name: str
    folder: Path
    alone: bool  # the only one: paths are shown without its name

    def shown(self, path: str) -> str:
        return path if self.alone else f"{self.name}/{path}"


def all_roots(roots: Mapping[str, Path]) -> list[Root]:
    if not roots:
        raise NoRootsError
    return [Root(name, folder, len(roots) == 1) for name, folder in sorted(roots.items())]


def in_root(roots: Mapping[str, Path], path: str, do: Callable[[Root, str], T]) -> T:
    """Call `do` with the root that a path means and the path in it.

    Raises:
        NoRootsError: there is none.
        UnknownRootError: the path begins with the name of none.
        RootGoneError: its folder is not there.
        AccessDeniedError, PathNotFoundError: what `do` raised, or the path's form alone.
    """
    known = all_roots(roots)
    first, *others = checked_parts(path) or [""]
    rest = "/".join(others) + ("/" if others and path.endswith("/") else "")
    if known[0].alone:
        try:
            return do(present(known[0]), path)
        except PathNotFoundError:
            if first != known[0].name:
                raise
    for root in known:
        if root.name == first:
            return do(present(root), rest)
    raise UnknownRootError


def relative_form(roots: Mapping[str, Path], path: str) -> str | None:
    """What an absolute path, or a glob, inside a root is called here; None for any other.

    Judged by its form alone: the answer says nothing about what exists, and nothing about other places.
    """
    if not is_absolute(path):
        return None
    form = posixpath.normpath(path)
    for root in sorted(all_roots(roots), key=lambda root: len(root.folder.parts), reverse=True):  # the innermost first
        inside = (below_root(root.folder, form) or "").strip("/")
        if inside:
            return root.shown(inside)
    return None


def present(root: Root) -> Root:
    if not root.folder.is_dir():
        raise RootGoneError(root.name)
    return root
