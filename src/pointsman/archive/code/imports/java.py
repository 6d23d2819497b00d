"""Java: a class is a file below a source folder; a wildcard is all files of a package."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from pointsman.archive.code.imports.syntax import Import, Parsed
from pointsman.archive.code.imports.tree import Tree, ancestors

_USUAL = ("src/main/java", "src/test/java", "src/java", "src", "")


def resolve(tree: Tree, importer: str, parsed: Parsed) -> Iterator[tuple[Import, str]]:
    sources = _source_folders(tree, importer, parsed.package)
    for each in parsed.imports:
        for path in _resolve_import(tree, sources, each):
            yield each, path


def _source_folders(tree: Tree, importer: str, package: str) -> list[str]:
    """The importer's own, without its package; then the usual ones of each ancestor; then those of sibling modules."""
    folders = ancestors(importer)
    own = folders[len(package.split(".")) if package else 0 :][:1]
    usual = [posixpath.join(folder, name) for folder in folders for name in _USUAL]
    siblings = [posixpath.join(name, "src/main/java") for name in tree.names("")]
    return list(dict.fromkeys((*own, *usual, *siblings)))


def _resolve_import(tree: Tree, sources: list[str], each: Import) -> Iterator[str]:
    name = each.target.removesuffix(".*")
    for source in sources:
        place = posixpath.join(source, name.replace(".", "/"))
        if path := _class(tree, place):
            yield path
            return
        if name == each.target or each.names:
            continue
        inside = [file for file in tree.names(place) if file.endswith(".java")]
        if inside:
            yield from (path for file in inside if (path := tree.file(posixpath.join(place, file))))
            return


def _class(tree: Tree, place: str) -> str | None:
    """The file of a class, or of its outer class for a static member or a nested class."""
    outer = posixpath.dirname(place)
    return tree.first(place + ".java", *([outer + ".java"] if outer else []))
