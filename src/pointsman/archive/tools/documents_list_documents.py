"""`documents_list_documents`: the table of contents of a collection, page by page."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.collections import COLLECTION, LONGEST_NAME, NAMED, find_collection, shown

DEFAULT_LIMIT = 100
MOST = 1_000
FARTHEST = 1_000_000_000


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    limit = given.integer("limit", low=1, high=MOST, default=DEFAULT_LIMIT)
    offset = given.integer("offset", low=0, high=FARTHEST, default=0)
    collection = find_collection(archive, given.text("collection", at_most=LONGEST_NAME))
    page = archive.storage.documents.list_documents(collection.name, limit, offset)
    following = offset + len(page.documents)
    answer: Json = {
        **shown(collection),
        "documents": [{"id": each.id, "title": each.title, "size": each.size} for each in page.documents],
        "total": page.total,
        "hasMore": following < page.total,
    }
    if page.documents and following < page.total:
        answer["notice"] = f"Go on with offset {following}."
    elif not page.documents and page.total:
        answer["notice"] = f"There are {page.total} documents; offset {offset} is behind the last."
        answer["hasMore"] = False
    return answer


TOOL = ArchiveTool(
    name="documents_list_documents",
    title="List documents",
    description=(
        "List all documents in a collection, page by page: an inventory of its docs, with the IDs, titles and "
        "sizes of the files, pages and articles inside that collection. Use this to browse everything that a "
        "library contains before searching, or instead of it. Supports pagination for large collections. Lists "
        "documents of one collection only, and not their text."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": COLLECTION,
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST,
                "default": DEFAULT_LIMIT,
                "description": "Maximum documents to return",
            },
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Offset for pagination"},
        },
        "required": ["collection"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **NAMED,
            "documents": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "title": {"type": "string"},
                        "size": {"type": "integer", "description": "Character count"},
                    },
                    "required": ["id", "title", "size"],
                },
            },
            "total": {"type": "integer"},
            "hasMore": {"type": "boolean"},
            "notice": {"type": "string"},
        },
        "required": ["collection", "documents", "total", "hasMore"],
    },
    run=run,
)
