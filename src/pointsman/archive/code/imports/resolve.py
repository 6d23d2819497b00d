"""Resolves the imports of a file to files of its project. Imports of libraries are skipped."""

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
    """The files that a file imports, in order, each with the kind of its first import."""
    kinds: dict[str, str] = {}
    for each, path in _RESOLVERS[grammar](Tree(root), importer, parsed):
        if path != importer:
            kinds.setdefault(path, each.kind)
        if len(kinds) == MOST:
            break
    return kinds
