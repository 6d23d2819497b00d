"""`documents_get_document`: one document, whole."""

from __future__ import annotations

from pointsman.archive.archive import Archive
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


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    asked_as = given.text("collection", at_most=LONGEST_NAME)
    id_ = given.text("document", at_most=LONGEST_NAME)
    collection = find_collection(archive, asked_as)
    document = find_document(archive, collection, asked_as, id_)
    return {**shown(collection), "document": document.id, "title": document.title, "content": document.content}


TOOL = ArchiveTool(
    name="documents_get_document",
    title="Read a whole document",
    description=(
        "Get the full content of a document: open or show a guide, article, note or page and read the whole, "
        "entire text, every word of it, complete from beginning to end, as its author wrote it. Use this when an "
        "excerpt is not enough. Where one part will do, use documents_get_section; for source code, read_file."
    ),
    input_schema={
        "type": "object",
        "properties": {"collection": COLLECTION, "document": DOCUMENT},
        "required": ["collection", "document"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **NAMED,
            "document": {"type": "string"},
            "title": {"type": "string"},
            "content": {"type": "string"},
        },
        "required": ["collection", "document", "title", "content"],
    },
    run=run,
)
