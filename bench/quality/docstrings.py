"""A set of titled documents that every machine has: what the docstrings of Python's standard library say.

A document is named after its function, class or module and contains its docstring without the first paragraph, which is
the query. So a query is written by who knows the document, and shares no sentence with it.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LEAST_CHARS = 200  # of a document
QUERY_WORDS = range(4, 31)
EVERY = 3  # documents: the others have no query, to keep the measurement short
LEFT_OUT = frozenset(
    {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
)

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Described(NamedTuple):
    name: str
    summary: str
    text: str


def described() -> list[Described]:
    """In the order of their names; of equal texts the first."""
    root = Path(sysconfig.get_path("stdlib"))
    found = {each.text: each for path in sorted(root.rglob("*.py"), reverse=True) for each in _in_file(root, path)}
    return sorted(found.values())


def queries(documents: list[Described]) -> dict[str, str]:
    """By name. A summary that its document repeats would be no question."""
    asked = [each for each in documents if each.summary.lower() not in " ".join(each.text.split()).lower()]
    return {each.name: each.summary for each in asked[::EVERY]}


def _in_file(root: Path, path: Path) -> Iterator[Described]:
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if not parts or any(part.startswith("_") or part in LEFT_OUT for part in parts):
        return
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # samples of wrong code
        return
    for name, docstring in _docstrings(module, ".".join(parts)):
        summary, _, text = docstring.strip().partition("\n\n")
        if len(text.strip()) >= LEAST_CHARS and len(summary.split()) in QUERY_WORDS:
            yield Described(name, " ".join(summary.split()), text.strip())


def _docstrings(node: _Documented, name: str) -> Iterator[tuple[str, str]]:
    docstring = ast.get_docstring(node)
    if docstring:
        yield name, docstring
    for child in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            yield from _docstrings(child, f"{name}.{child.name}")
