"""Go: an import path below the module path of go.mod is a folder; the package is its files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from pointsman.archive.code.imports.syntax import Import, Parsed
from pointsman.archive.code.imports.tree import Tree

_MODULE = re.compile(r'^\s*module\s+"?([^\s"]+)"?', re.MULTILINE)


def resolve(tree: Tree, importer: str, parsed: Parsed) -> Iterator[tuple[Import, str]]:
    mod = tree.nearest(importer, "go.mod")
    declared = _MODULE.search(tree.text(mod) or "") if mod else None
    if mod is None or declared is None:
        return
    module, home = declared[1], posixpath.dirname(mod)
    for each in parsed.imports:
        if each.target != module and not each.target.startswith(module + "/"):
            continue
        folder = posixpath.join(home, each.target[len(module) :].strip("/"))
        for name in tree.names(folder):
            if (
                name.endswith(".go")
                and not name.endswith("_test.go")
                and (path := tree.file(posixpath.join(folder, name)))
            ):
                yield each, path
