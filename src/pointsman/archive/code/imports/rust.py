"""Rust: `mod` declarations, and paths from `crate`, `self`, `super` or the name of a crate in the project."""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pointsman.archive.code.imports.syntax import Import, Parsed
from pointsman.archive.code.imports.tree import Tree, ancestors

_CRATE_FILES = ("lib.rs", "main.rs")


@dataclass(frozen=True, slots=True)
class _Crates:
    home: str  # the folder of the importer's own modules
    others: dict[str, str] = field(default_factory=dict)  # source folders of crates in the project, by name


def resolve(tree: Tree, importer: str, parsed: Parsed) -> Iterator[tuple[Import, str]]:
    crates = _crates(tree, importer)
    for each in parsed.imports:
        path = _module(tree, importer, each) if each.kind == "module" else _resolve_use(tree, importer, crates, each)
        if path:
            yield each, path


def _module(tree: Tree, importer: str, each: Import) -> str | None:
    if each.file:
        return tree.file(posixpath.join(posixpath.dirname(importer), each.file))
    place = posixpath.join(_children(importer), *each.names, each.target)
    return tree.first(place + ".rs", place + "/mod.rs")


def _children(file: str) -> str:
    """The folder of a file's submodules."""
    folder, name = posixpath.split(file)
    if name in ("mod.rs", *_CRATE_FILES) or posixpath.basename(folder) in ("bin", "tests", "examples", "benches"):
        return folder
    return posixpath.join(folder, name.removesuffix(".rs"))


def _resolve_use(tree: Tree, importer: str, crates: _Crates, each: Import) -> str | None:
    first, *rest = each.target.removeprefix("::").split("::")
    here = posixpath.join(_children(importer), *each.names)
    if first == "crate":
        return _longest(tree, crates.home, rest)
    if first in ("self", "super"):
        steps = [first, *rest]
        while steps and steps[0] in ("self", "super"):
            if steps.pop(0) == "super":
                here = posixpath.dirname(here)
        return _longest(tree, here, steps)
    if first in crates.others:
        return _longest(tree, crates.others[first], rest)
    return _longest(tree, here, [first, *rest], whole=False)  # a sibling module, or a third-party crate


def _longest(tree: Tree, folder: str, steps: list[str], *, whole: bool = True) -> str | None:
    """The deepest module on the path; the rest are items in it. `whole`: if there is none, the folder's own file."""
    for count in range(len(steps), 0, -1):
        place = posixpath.join(folder, *steps[:count])
        if found := tree.first(place + ".rs", place + "/mod.rs"):
            return found
    if not whole:
        return None
    files = (
        *(posixpath.join(folder, name) for name in (*_CRATE_FILES, "mod.rs")),
        *([folder + ".rs"] if folder else []),
    )
    return tree.first(*files)


def _crates(tree: Tree, importer: str) -> _Crates:
    manifest = tree.nearest(importer, "Cargo.toml")
    if manifest is None:
        return _Crates(posixpath.dirname(importer))
    top = posixpath.dirname(manifest)
    home = posixpath.join(top, "src")
    content = _toml(tree, manifest)
    others = {_crate_name(content): home} if _crate_name(content) else {}
    for name, folder in _paths(content, top):
        others[name.replace("-", "_")] = posixpath.join(folder, "src")
    for folder in ancestors(manifest)[1:]:  # a workspace above defines the paths of its members
        for name, place in _paths(_toml(tree, posixpath.join(folder, "Cargo.toml")).get("workspace", {}), folder):
            others.setdefault(name.replace("-", "_"), posixpath.join(place, "src"))
    return _Crates(home, others)


def _crate_name(content: dict[str, Any]) -> str:
    package = content.get("package")
    name = package.get("name") if isinstance(package, dict) else None
    return name.replace("-", "_") if isinstance(name, str) else ""


def _paths(content: object, folder: str) -> Iterator[tuple[str, str]]:
    """The dependencies with a `path`."""
    if not isinstance(content, dict):
        return
    for table in ("dependencies", "dev-dependencies", "build-dependencies"):
        listed = content.get(table)
        for name, spec in listed.items() if isinstance(listed, dict) else ():
            if isinstance(spec, dict) and isinstance(spec.get("path"), str):
                yield name, posixpath.join(folder, spec["path"])


def _toml(tree: Tree, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads((tree.text(path) if tree.file(path) else None) or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
