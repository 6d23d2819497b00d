"""The index that a call names, for the tools that work on one."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.indexes.indexes import DEFAULT
from pointsman.archive.model.indexes import Index
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import Json, ToolError

INDEX_NAME: Json = {"type": "string", "description": "Which index; `default` is always there", "default": DEFAULT}
_SHOWN_CHARS = 100
_SHOWN_NAMES = 20


def named_index(archive: Archive, given: Arguments) -> Index:
    """Raises ToolError."""
    name = given.optional_text("index_name", at_least=0) if given.has("index_name") else DEFAULT
    index = archive.indexes.find(name or "")
    if index is None:
        names = archive.indexes.names()
        there = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        raise ToolError(
            f"Index not found: {(name or '')[:_SHOWN_CHARS]}",
            code="not_found",
            help=f"Indexes that are there: {there}. Make one with search_create_index.",
            as_object=True,
        )
    return index
