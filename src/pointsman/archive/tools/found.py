"""Passages that were found, as the tools show them."""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.archive.archive import Archive
from pointsman.archive.search.searcher import Found
from pointsman.archive.tools.base import Json
from pointsman.archive.tools.collections import NAMED, shown

MOST_CONTENT = 4_000  # characters; passages that we cut ourselves are shorter

ITEM: Json = {
    "type": "object",
    "properties": {
        **NAMED,
        "documentId": {"type": "string", "description": "For documents_get_document and documents_get_section"},
        "documentTitle": {"type": "string"},
        "sectionHeading": {"type": "string", "description": "The nearest heading above the passage"},
        "content": {"type": "string", "description": "The passage"},
        "relevanceScore": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "1 is best; low where the passage says little of what was asked",
        },
        "distance": {
            "type": "number",
            "minimum": 0,
            "maximum": 2,
            "description": "Cosine distance between query and passage; 1 where the passage has no vector",
        },
        "chunkIndex": {"type": "integer", "minimum": 1, "description": "Which passage of the document"},
        "totalChunks": {"type": "integer", "minimum": 1},
        "truncated": {"type": "boolean", "description": "The passage is longer; documents_get_section has all of it"},
    },
    "required": ["collection", "documentId", "documentTitle", "content", "relevanceScore", "distance"],
}


def items(archive: Archive, found: Iterable[Found]) -> list[Json]:
    collections = {each.name: each for each in archive.storage.documents.collections()}
    # A collection that was removed since the search takes its passages with it.
    return [
        {**shown(collections[hit.passage.collection]), **_item(hit)}
        for hit in found
        if hit.passage.collection in collections
    ]


def _item(hit: Found) -> Json:
    passage = hit.passage
    item: Json = {"documentId": passage.document, "documentTitle": passage.title}
    if passage.chunk.heading:
        item["sectionHeading"] = passage.chunk.heading
    item["content"] = passage.chunk.text[:MOST_CONTENT]
    item["relevanceScore"] = round(hit.relevance, 4)
    item["distance"] = round(hit.distance, 4)
    item["chunkIndex"] = passage.place
    item["totalChunks"] = passage.places
    if len(passage.chunk.text) > MOST_CONTENT:
        item["truncated"] = True
    return item
