"""Python: modules and packages below the source folders of usual project layouts, and relative imports."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from pointsman.archive.code.imports.syntax import Import, Parsed
from pointsman.archive.code.imports.tree import Tree, ancestors

_USUAL = ("src", "lib", "python")


def resolve(tree: Tree, importer: str, parsed: Parsed) -> Iterator[tuple[Import, str]]:
    sources = _source_folders(tree, importer)
    for each in parsed.imports:
        module = each.target.lstrip(".")
        dots = len(each.target) - len(module)
        folders = _package(importer, dots) if dots else sources
        for path in _resolve_import(tree, folders, module, each.names):
            yield each, path


def _source_folders(tree: Tree, importer: str) -> list[str]:
    """Where absolute imports may begin: above the importer's own package first, then the usual source folders."""
    folders = ancestors(importer)
    outermost = next((folder for folder in folders if not _is_package(tree, folder)), "")
    usual = [posixpath.join(folder, name) for folder in folders for name in _USUAL]
    higher = folders[folders.index(outermost) :]
    return list(dict.fromkeys((*higher, *usual)))


def _is_package(tree: Tree, folder: str) -> bool:
    return bool(folder) and tree.file(posixpath.join(folder, "__init__.py")) is not None


def _package(importer: str, dots: int) -> list[str]:
    folders = ancestors(importer)
    return folders[dots - 1 : dots]


def _resolve_import(tree: Tree, folders: list[str], module: str, names: tuple[str, ...]) -> Iterator[str]:
    """For `from a import b`: the file of b if b is a module; the file of a if some b is not."""
    for folder in folders:
        place = posixpath.join(folder, module.replace(".", "/"))
        inside = {name: path for name in names if (path := _module(tree, posixpath.join(place, name)))}
        whole = _module(tree, place) if module else tree.file(posixpath.join(place, "__init__.py"))
        if not inside and not whole:
            continue
        if whole and (not names or len(inside) < len(names)):
            yield whole
        yield from inside.values()
        return


def _module(tree: Tree, place: str) -> str | None:
    return tree.first(place + ".py", posixpath.join(place, "__init__.py"), place + ".pyi")
