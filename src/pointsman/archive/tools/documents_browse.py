"""`documents_list_collections` and `documents_list_documents`: what the archive holds, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.archive import Archive
from pointsman.archive.ingest.progress import read_progress
from pointsman.archive.model.documents import Collection
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call
from pointsman.archive.tools.documents_lookup import (
    COLLECTION_PARAMETER,
    COLLECTION_SCHEMA,
    EMPTY_ARCHIVE,
    MAX_NAME_CHARS,
    collection_fields,
    find_collection,
)
from pointsman.core.model import Json

MAX_COLLECTIONS = 500
DEFAULT_PAGE = 100
MAX_PAGE = 1_000
MAX_OFFSET = 1_000_000_000


def list_collections(archive: Archive, arguments: Json, call: Call) -> Json:
    with_statistics = Arguments(arguments).flag("statistics", False)  # for the owner's page; models need it not
    collections = archive.storage.documents.collections()
    answer: Json = {"collections": [_describe(each) for each in collections[:MAX_COLLECTIONS]]}
    if with_statistics:
        answer["statistics"] = _statistics(archive, collections[:MAX_COLLECTIONS])
    if not collections:
        answer["notice"] = EMPTY_ARCHIVE
    if len(collections) > MAX_COLLECTIONS:
        answer["notice"] = (
            f"Shows the first {MAX_COLLECTIONS} of {len(collections)} collections; documents_search takes any of them."
        )
    return answer


def _describe(collection: Collection) -> Json:
    entry: Json = {**collection_fields(collection), "documentCount": collection.documents}
    if collection.manifest.description:
        entry["description"] = collection.manifest.description
    if collection.manifest.version:
        entry["version"] = collection.manifest.version
    return entry


def _statistics(archive: Archive, collections: Sequence[Collection]) -> Json:
    found, embedding = archive.storage.documents.stats(), archive.embedding
    runs = (read_progress(archive.storage.key_values, each.name) for each in collections)
    return {
        "bytes": found.bytes,
        "passages": {each.name: each.chunks for each in found.collections},
        "vectors": [{"space": space, "count": count} for space, count in found.vectors.items()],
        "waiting": found.waiting,
        "embeddings": embedding is not None,
        "problem": embedding.problem if embedding is not None else None,
        "ingest": [run for run in runs if run is not None],
    }


def list_documents(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    limit = given.integer("limit", low=1, high=MAX_PAGE, default=DEFAULT_PAGE)
    offset = given.integer("offset", low=0, high=MAX_OFFSET, default=0)
    collection = find_collection(archive, given.text("collection", at_most=MAX_NAME_CHARS))
    page = archive.storage.documents.list_documents(collection.name, limit, offset)
    following = offset + len(page.documents)
    answer: Json = {
        **collection_fields(collection),
        "documents": [{"id": each.id, "title": each.title, "size": each.size} for each in page.documents],
        "total": page.total,
        "hasMore": following < page.total,
    }
    if page.documents and following < page.total:
        answer["notice"] = f"Continue with offset {following}."
    elif not page.documents and page.total:
        answer["notice"] = f"Offset {offset} is past the last of {page.total} documents."
        answer["hasMore"] = False
    return answer


DOCUMENTS_LIST_COLLECTIONS = ArchiveTool(
    name="documents_list_collections",
    title="Overview of the collections",
    description=(
        "List the collections of documents that there are: which libraries, knowledge bases, documentation sets and "
        "sources are loaded and can be searched. Says what is available, with the name and version of each, what it is "
        "about, how big it is and how many documents it holds. Gives an overview when you do not know where to look."
    ),
    input_schema={"type": "object", "properties": {}},
    output_schema={
        "type": "object",
        "properties": {
            "collections": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        **COLLECTION_SCHEMA,
                        "documentCount": {"type": "integer"},
                        "description": {"type": "string"},
                        "version": {"type": "string"},
                    },
                    "required": ["collection", "documentCount"],
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["collections"],
    },
    run=list_collections,
)

DOCUMENTS_LIST_DOCUMENTS = ArchiveTool(
    name="documents_list_documents",
    title="List documents",
    description=(
        "List all documents in a collection, every document with its ID, title and size: an inventory of the articles, "
        "papers, guides and files in a handbook or library. Tells what documents are inside that collection, how many "
        "and what they are called, and lets you browse everything filed there. A long list comes in parts."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": COLLECTION_PARAMETER,
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_PAGE,
                "default": DEFAULT_PAGE,
                "description": "Maximum documents to return",
            },
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Offset for pagination"},
        },
        "required": ["collection"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **COLLECTION_SCHEMA,
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
    run=list_documents,
)
