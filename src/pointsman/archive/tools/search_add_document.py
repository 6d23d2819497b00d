"""`search_add_document`: one text into an index, or in place of the one with its id."""

from __future__ import annotations

import json

from pointsman.archive.archive import Archive
from pointsman.archive.model.indexes import GAP, Entry, IndexFullError
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json, ToolError
from pointsman.archive.tools.named_index import INDEX_NAME, named_index

LONGEST_ID = 512
LONGEST_CONTENT = 10_000_000
LARGEST_METADATA_BYTES = 65_536


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    index = named_index(archive, given)
    doc_id = given.text("doc_id", at_most=LONGEST_ID)
    content = arguments.get("content")
    if not isinstance(content, str) or not content.strip():
        raise ToolError("Content must be a non-empty string", code="invalid_parameters", as_object=True)
    entry = Entry(doc_id, given.text("content", at_most=LONGEST_CONTENT), _metadata(given))
    words = index.tokenizer(content)
    try:
        replaced = index.add(entry, words)
    except IndexFullError as error:
        raise ToolError("Index is full", code="limit_reached", help=str(error), as_object=True) from None
    return {
        "status": "re-indexed" if replaced else "indexed",
        "doc_id": doc_id,
        "token_count": len(words) - words.count(GAP),
    }


def _metadata(given: Arguments) -> Json:
    metadata = given.table("metadata") or {}
    try:
        size = len(json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, RecursionError):  # not a number, half a character, nested without end
        raise given.failure("metadata", "must be plain JSON") from None
    if size > LARGEST_METADATA_BYTES:
        raise given.failure("metadata", f"must take at most {LARGEST_METADATA_BYTES} bytes as JSON")
    return metadata


TOOL = ArchiveTool(
    name="search_add_document",
    title="Add a document to a search index",
    description=(
        "Add or update a document in a search index: put in, store or save a text or note with its metadata, so "
        "that it is remembered and can be found later. An entry with the same doc_id is replaced: re-indexed with "
        "the new content. Without index_name it goes into the `default` index, which is in memory. Returns how "
        "many tokens were taken in."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "doc_id": {
                "type": "string",
                "description": "Unique id of the document in its index",
                "minLength": 1,
                "maxLength": LONGEST_ID,
            },
            "content": {
                "type": "string",
                "description": "The text to index",
                "minLength": 1,
                "maxLength": LONGEST_CONTENT,
            },
            "metadata": {"type": "object", "description": "Anything to be returned with the document when it is found"},
            "index_name": INDEX_NAME,
        },
        "required": ["doc_id", "content"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["indexed", "re-indexed"]},
            "doc_id": {"type": "string"},
            "token_count": {"type": "integer"},
        },
        "required": ["status", "doc_id", "token_count"],
    },
    run=run,
    read_only=False,
)
