"""Which files are read, and as what; by the ends of their names."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

Kind = Literal["markdown", "text", "html", "pdf"]

_ENDINGS: dict[Kind, str] = {
    "markdown": "md markdown mdown mkd mkdn mdx qmd rmd",
    "text": "txt text rst org adoc asciidoc textile wiki tex",
    "html": "html htm xhtml",
    "pdf": "pdf",
}
_KINDS: dict[str, Kind] = {f".{ending}": kind for kind, endings in _ENDINGS.items() for ending in endings.split()}
_WITHOUT_ENDING = frozenset(
    {"readme", "license", "licence", "changelog", "changes", "news", "notes", "todo", "authors"}
)


def kind_of(path: str) -> Kind | None:
    """None: not read unless it is asked for by name."""
    name = PurePosixPath(path)
    if not name.suffix:
        return "text" if name.name.lower() in _WITHOUT_ENDING else None
    return _KINDS.get(name.suffix.lower())
