"""TypeScript and JavaScript: relative imports, omitted extensions, index files, and the aliases of tsconfig.json."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pointsman.archive.code.imports.syntax import Import, Parsed
from pointsman.archive.code.imports.tree import Tree, normalize

_ENDINGS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".json", ".vue", ".svelte")
_SOURCES = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}  # what compiles to it
_MOST_EXTENDS = 8  # configurations that extend one another
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*+")|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+")|,(?=\s*+[}\]])', re.DOTALL)


def resolve(tree: Tree, importer: str, parsed: Parsed) -> Iterator[tuple[Import, str]]:
    known: Aliases | None = None
    for each in parsed.imports:
        target = each.target.partition("?")[0]  # bundlers append `?raw` and the like
        if target in (".", "..") or target.startswith(("./", "../")):
            places = [posixpath.join(posixpath.dirname(importer), target)]
        else:
            known = known if known is not None else read_aliases(tree, importer)
            places = known.places(target)
        if path := next((found for place in places if (found := _file(tree, place))), None):
            yield each, path


def _file(tree: Tree, place: str) -> str | None:
    place = normalize(place)
    stem, ending = posixpath.splitext(place)
    return tree.first(
        place,
        *(stem + source for source in _SOURCES.get(ending, ())),
        *(place + each for each in _ENDINGS),
        *(posixpath.join(place, "index" + each) for each in _ENDINGS),
    )


@dataclass(frozen=True, slots=True)
class Aliases:
    base: str | None = None  # the folder that `baseUrl` names
    home: str = ""  # the folder of the file that defines `paths`
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def places(self, target: str) -> list[str]:
        """The candidates for a bare import, best first: the longest matching pattern, then `baseUrl`."""
        places = []
        if matching := [pattern for pattern in self.paths if _matches(pattern, target)]:
            best = max(matching, key=lambda pattern: ("*" not in pattern, len(pattern.partition("*")[0])))
            before, star, after = best.partition("*")
            middle = target[len(before) : len(target) - len(after)] if star else ""
            folder = self.home if self.base is None else self.base
            places = [posixpath.join(folder, to.replace("*", middle, 1)) for to in self.paths[best]]
        return places if self.base is None else [*places, posixpath.join(self.base, target)]


def read_aliases(tree: Tree, importer: str) -> Aliases:
    """The aliases of the nearest tsconfig.json or jsconfig.json above a file."""
    path = tree.nearest(importer, "tsconfig.json", "jsconfig.json")
    return _read_config(tree, path, _MOST_EXTENDS) if path else Aliases()


def _read_config(tree: Tree, path: str, deeper: int) -> Aliases:
    content = loads(tree.text(path) or "")
    folder = posixpath.dirname(path)
    found = Aliases()
    for parent in _extended(tree, folder, content.get("extends")) if deeper else ():
        inherited = _read_config(tree, parent, deeper - 1)
        found = Aliases(
            found.base if inherited.base is None else inherited.base,
            inherited.home if inherited.paths else found.home,
            inherited.paths or found.paths,
        )
    options = content.get("compilerOptions")
    base, paths = (options.get("baseUrl"), options.get("paths")) if isinstance(options, dict) else (None, None)
    if isinstance(base, str):
        found = replace(found, base=posixpath.join(folder, base))
    if isinstance(paths, dict):
        found = replace(found, home=folder, paths=_targets(paths))
    return found


def _extended(tree: Tree, folder: str, extends: object) -> Iterator[str]:
    """The files that `extends` names. Those of packages lie in node_modules, which is never read."""
    for name in extends if isinstance(extends, list) else [extends]:
        if isinstance(name, str) and name.startswith("."):
            place = posixpath.join(folder, name)
            if path := tree.first(place, place + ".json", posixpath.join(place, "tsconfig.json")):
                yield path


def _targets(paths: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        pattern: tuple(to for to in targets if isinstance(to, str))
        for pattern, targets in paths.items()
        if isinstance(targets, list)
    }


def _matches(pattern: str, target: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return pattern == target
    return len(target) >= len(before) + len(after) and target.startswith(before) and target.endswith(after)


def loads(text: str) -> dict[str, Any]:
    """JSON with comments and trailing commas; an empty object if it is invalid."""
    plain = _COMMENT.sub(lambda found: found[1] or " ", text)
    plain = _LAST_COMMA.sub(lambda found: found[1] or "", plain)
    try:
        content = json.loads(plain)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
