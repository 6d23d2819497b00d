"""TypeScript and JavaScript: relative imports, extensions left out, index files, and the aliases of tsconfig.json."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from pointsman.archive.code.imports import Import, Parsed
from pointsman.archive.code.tree import Tree, normal
from pointsman.archive.code.tsconfig import Aliases, aliases

_ENDINGS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".json", ".vue", ".svelte")
_SOURCES = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}  # what compiles to it


def resolve(tree: Tree, importer: str, parsed: Parsed) -> Iterator[tuple[Import, str]]:
    known: Aliases | None = None
    for each in parsed.imports:
        target = each.target.partition("?")[0]  # bundlers hang `?raw` and the like on it
        if target in (".", "..") or target.startswith(("./", "../")):
            places = [posixpath.join(posixpath.dirname(importer), target)]
        else:
            known = known if known is not None else aliases(tree, importer)
            places = known.places(target)
        if path := next((found for place in places if (found := _file(tree, place))), None):
            yield each, path


def _file(tree: Tree, place: str) -> str | None:
    place = normal(place)
    stem, ending = posixpath.splitext(place)
    return tree.first(
        place,
        *(stem + source for source in _SOURCES.get(ending, ())),
        *(place + each for each in _ENDINGS),
        *(posixpath.join(place, "index" + each) for each in _ENDINGS),
    )
