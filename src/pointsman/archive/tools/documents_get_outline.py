"""`documents_get_outline`: the headings of a document."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.text.outline import outline
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.collections import (
    COLLECTION,
    DOCUMENT,
    LONGEST_NAME,
    NAMED,
    find_collection,
    find_document,
    shown,
)

DEFAULT_DEPTH = 3
MOST = 2_000


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    asked_as = given.text("collection", at_most=LONGEST_NAME)
    id_ = given.text("document", at_most=LONGEST_NAME)
    depth = given.integer("maxDepth", low=1, high=6, default=DEFAULT_DEPTH)
    collection = find_collection(archive, asked_as)
    document = find_document(archive, collection, asked_as, id_)
    every = outline(document.content)
    headings = [heading for heading in every if heading.level <= depth]
    answer: Json = {
        **shown(collection),
        "document": document.id,
        "title": document.title,
        "outline": [
            {"level": heading.level, "text": heading.text, "line": heading.line} for heading in headings[:MOST]
        ],
    }
    notice = _notice(len(every), len(headings), depth)
    return {**answer, "notice": notice} if notice else answer


def _notice(every: int, within: int, depth: int) -> str:
    if not every:
        return "The document has no headings. documents_get_document has its text."
    if not within:
        return f"All {every} headings are deeper than {depth}. Ask with a greater maxDepth."
    if within > MOST:
        return f"These are the first {MOST} of {within} headings. Ask with a smaller maxDepth to see the whole."
    return ""


TOOL = ArchiveTool(
    name="documents_get_outline",
    title="Outline of a document",
    description=(
        "Get the outline of a document, its table of contents: which sections, chapters and headings there are in "
        "a guide, manual or page, with their levels and line numbers. Use this to see the structure or skeleton of "
        "a long document and understand how its sections are organized before reading. Shows the headings only, "
        "not the text below them."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": COLLECTION,
            "document": DOCUMENT,
            "maxDepth": {
                "type": "integer",
                "minimum": 1,
                "maximum": 6,
                "default": DEFAULT_DEPTH,
                "description": "Maximum heading depth (1-6)",
            },
        },
        "required": ["collection", "document"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **NAMED,
            "document": {"type": "string"},
            "title": {"type": "string"},
            "outline": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "level": {"type": "integer", "minimum": 1, "maximum": 6},
                        "text": {"type": "string"},
                        "line": {"type": "integer", "minimum": 1},
                    },
                    "required": ["level", "text", "line"],
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["collection", "document", "title", "outline"],
    },
    run=run,
)
