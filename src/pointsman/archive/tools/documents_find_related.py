"""`documents_find_related`: passages of the same collection that are about the same."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.search.searcher import Source
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.collections import (
    DOCUMENT,
    LONGEST_NAME,
    NAMED,
    find_collection,
    no_document,
    shown,
)
from pointsman.archive.tools.found import ITEM, items

DEFAULT_LIMIT = 5
MOST_RESULTS = 100
LONGEST_CHUNK = 100_000


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    asked_as = given.text("collection", at_most=LONGEST_NAME)
    id_ = given.text("document", at_most=LONGEST_NAME)
    chunk = given.optional_text("chunk", at_least=0, at_most=LONGEST_CHUNK)
    limit = given.integer("limit", low=1, high=MOST_RESULTS, default=DEFAULT_LIMIT)
    same_document = given.flag("sameDocument", False)
    collection = find_collection(archive, asked_as)
    if not archive.storage.documents.has(collection.name, id_):
        raise no_document(archive, collection, asked_as, id_)
    source = Source(collection.name, id_, chunk if chunk and chunk.strip() else None)
    answer = archive.searcher.related(source, limit, same_document=same_document)
    related = [{**item, "document": item["documentId"]} for item in items(archive, answer.found)]
    notice = {"notice": " ".join(answer.notices)} if answer.notices else {}
    return {"source": {**shown(collection), "document": id_}, "related": related, **notice}


TOOL = ArchiveTool(
    name="documents_find_related",
    title="Find related documents",
    description=(
        "Find content semantically related to a document that you have or are reading, or to a chunk of it: "
        "similar articles and pages, others on the same theme or subject, what else there is like it in the docs, "
        "further reading, what to read next. Use this to expand context. Looks in the same collection and leaves "
        "the document itself out unless sameDocument is set. To start from a question, use documents_search."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": {"type": "string", "description": "Collection containing the source (name or alias)"},
            "document": {**DOCUMENT, "description": "Document ID to find related content for"},
            "chunk": {
                "type": "string",
                "maxLength": LONGEST_CHUNK,
                "description": "Specific chunk content (if not provided, uses document centroid)",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_RESULTS,
                "default": DEFAULT_LIMIT,
                "description": "Maximum related items",
            },
            "sameDocument": {
                "type": "boolean",
                "default": False,
                "description": "Include chunks from the same document",
            },
        },
        "required": ["collection", "document"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "source": {
                "type": "object",
                "properties": {**NAMED, "document": {"type": "string"}},
                "required": ["collection", "document"],
            },
            "related": {
                "type": "array",
                "items": {
                    **ITEM,
                    "properties": {**ITEM["properties"], "document": {"type": "string"}},
                    "required": [*ITEM["required"], "document"],
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["source", "related"],
    },
    run=run,
)
