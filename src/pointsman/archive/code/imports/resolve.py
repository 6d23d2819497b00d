"""From what a file imports to the files of its project. What is not in the project, such as a library, is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pointsman.archive.code.imports import go, java, python, rust, typescript
from pointsman.archive.code.imports.syntax import Import, Parsed
from pointsman.archive.code.imports.tree import Tree

MOST = 100  # dependencies of one file

_RESOLVERS: dict[str, Callable[[Tree, str, Parsed], Iterator[tuple[Import, str]]]] = {
    **dict.fromkeys(("javascript", "typescript", "tsx"), typescript.resolve),
    "python": python.resolve,
    "go": go.resolve,
    "rust": rust.resolve,
    "java": java.resolve,
}


def resolve(root: Path, importer: str, grammar: str, parsed: Parsed) -> dict[str, str]:
    """The files that a file depends on, in the order of its imports, each with the kind of the first import of it."""
    kinds: dict[str, str] = {}
    for each, path in _RESOLVERS[grammar](Tree(root), importer, parsed):
        if path != importer:
            kinds.setdefault(path, each.kind)
        if len(kinds) == MOST:
            break
    return kinds
