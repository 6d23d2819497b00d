"""`documents_search`, `documents_search_batch` and `documents_find_related`: passages by words and by meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pointsman.archive.archive import Archive
from pointsman.archive.model.query import Query
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import Answer, Found, Source
from pointsman.archive.shipped import without_pages
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call
from pointsman.archive.tools.documents_lookup import (
    COLLECTION_SCHEMA,
    DOCUMENT_PARAMETER,
    MAX_NAME_CHARS,
    collection_fields,
    document_not_found,
    find_collection,
)
from pointsman.core.model import Json

DEFAULT_LIMIT = 10
DEFAULT_BATCH_LIMIT = 5  # of each query
DEFAULT_RELATED_LIMIT = 5
MAX_RESULTS = 100
MAX_QUERIES = 10  # of a batch
MAX_COLLECTIONS = 50
MAX_QUERY_CHARS = 20_000  # longer ones are refused; the parser decides how much of a query it reads
MAX_CHUNK_CHARS = 100_000
MAX_SHOWN_CHARS = 4_000  # of a passage; those that the chunker cuts are shorter
NO_WORDS = "The query has only filters, exclusions or punctuation. Add at least one word."
EMPTY = "The query is empty. Write a question or keywords to search for."


def search_documents(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    options = _read_options(given, DEFAULT_LIMIT)
    with archive.searcher.reading():
        query = _read_query(archive, given)
        return _search(archive, arguments["query"], query, options)


def search_batch(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    options = _read_options(given, DEFAULT_BATCH_LIMIT)
    queries = [
        (each.text("query", at_least=0), _read_query(archive, each))  # reject the batch before the first search
        for each in given.each("queries", at_least=1, at_most=MAX_QUERIES)
    ]
    return {"results": [{"query": text, **_search(archive, text, query, options)} for text, query in queries]}


def find_related(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    requested = given.text("collection", at_most=MAX_NAME_CHARS)
    id_ = given.text("document", at_most=MAX_NAME_CHARS)
    chunk = given.optional_text("chunk", at_least=0, at_most=MAX_CHUNK_CHARS)
    limit = given.integer("limit", low=1, high=MAX_RESULTS, default=DEFAULT_RELATED_LIMIT)
    same_document = given.flag("sameDocument", False)
    collection = find_collection(archive, requested)
    if not archive.storage.documents.has(collection.name, id_):
        raise document_not_found(archive, collection, requested, id_)
    source = Source(collection.name, id_, chunk if chunk and chunk.strip() else None)
    answer = archive.searcher.related(source, limit, same_document=same_document)
    related = [{**item, "document": item["documentId"]} for item in _passages(archive, answer.found)]
    notice = {"notice": " ".join(answer.notices)} if answer.notices else {}
    return {"source": {**collection_fields(collection), "document": id_}, "related": related, **notice}


@dataclass(frozen=True, slots=True)
class _Options:
    limit: int
    max_distance: float | None
    hybrid: bool


def _read_options(given: Arguments, default_limit: int) -> _Options:
    return _Options(
        limit=given.integer("limit", low=1, high=MAX_RESULTS, default=default_limit),
        max_distance=given.number("maxDistance", low=0, high=2) if given.has("maxDistance") else None,
        hybrid=given.flag("hybridSearch", True),
    )


def _read_query(archive: Archive, given: Arguments) -> Query:
    """Parse the query; limit it to the collections that both its filters and the call name.

    Raises:
        ToolError: one of the collections does not exist.
    """
    query = parse(given.text("query", at_least=0, at_most=MAX_QUERY_CHARS))
    by_call = _full_names(archive, given.texts("collections", at_most=MAX_COLLECTIONS, each_at_most=MAX_NAME_CHARS))
    by_filter = _full_names(archive, query.filters.collections)
    both = [name for name in by_call if name in by_filter] if by_call and by_filter else by_call or by_filter
    if by_call and by_filter and not both:
        return Query(notices=(*query.notices, "`collections` and `collection:` have no collection in common."))
    filters = replace(query.filters, collections=tuple(both))
    return without_pages(archive.storage, replace(query, filters=filters))


def _full_names(archive: Archive, names: Sequence[str]) -> list[str]:
    return [find_collection(archive, name).name for name in names]


def _search(archive: Archive, text: str, query: Query, options: _Options) -> Json:
    answer = archive.searcher.search(query, options.limit, by_words=options.hybrid, max_distance=options.max_distance)
    return {"results": _passages(archive, answer.found), **_notice(text, query, answer)}


def _notice(text: str, query: Query, answer: Answer) -> Json:
    notices = list(answer.notices)
    if query.empty and not notices:
        notices.append(NO_WORDS if text.strip() else EMPTY)
    return {"notice": " ".join(notices)} if notices else {}


def _passages(archive: Archive, found: Iterable[Found]) -> list[Json]:
    collections = {each.name: each for each in archive.storage.documents.collections()}
    # A collection that was removed since the search takes its passages with it.
    return [
        {**collection_fields(collections[hit.passage.collection]), **_passage(hit)}
        for hit in found
        if hit.passage.collection in collections
    ]


def _passage(hit: Found) -> Json:
    passage = hit.passage
    item: Json = {"documentId": passage.document, "documentTitle": passage.title}
    if passage.chunk.heading:
        item["sectionHeading"] = passage.chunk.heading
    item["content"] = passage.chunk.text[:MAX_SHOWN_CHARS]
    item["relevanceScore"] = round(hit.relevance, 4)
    item["distance"] = round(hit.distance, 4)
    item["chunkIndex"] = passage.place
    item["totalChunks"] = passage.places
    if len(passage.chunk.text) > MAX_SHOWN_CHARS:
        item["truncated"] = True
    return item


_LANGUAGE = (
    'Words, +must, -not, "a phrase" and the filters collection:, source:, tag:, after: and before: are understood.'
)
_COLLECTIONS: Json = {
    "type": "array",
    "items": {"type": "string"},
    "maxItems": MAX_COLLECTIONS,
    "description": "Limit to specific collections",
}
_OPTIONS: Json = {
    "maxDistance": {"type": "number", "minimum": 0, "maximum": 2, "description": "Maximum distance threshold"},
    "hybridSearch": {
        "type": "boolean",
        "default": True,
        "description": "Use hybrid search (words and meaning); false: meaning alone",
    },
}
_PASSAGE: Json = {
    "type": "object",
    "properties": {
        **COLLECTION_SCHEMA,
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


def _limit_schema(default: int) -> Json:
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_RESULTS,
        "default": default,
        "description": "Maximum number of results",
    }


DOCUMENTS_SEARCH = ArchiveTool(
    name="documents_search",
    title="Search documents",
    description=(
        "Search documents for what they say: which page or passage of a manual, guide, policy, contract, report or PDF "
        "covers, mentions or explains something. Finds where a handbook, procedure, agreement, spec, standard, "
        "datasheet, brochure or paper describes, states, promises or defines it, or whether anything is written about "
        "it. Looks up a fact, rule, clause, value, definition, error code, table, terms, instructions or an official "
        "description of how to do something, and what is supported, allowed or required according to the docs. Returns "
        "the exact wording of the paragraph to quote or cite. Searches by words and by meaning, but not in source code."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "maxLength": MAX_QUERY_CHARS,
                "description": f"Search query: a question or keywords. {_LANGUAGE}",
            },
            "collections": _COLLECTIONS,
            "limit": _limit_schema(DEFAULT_LIMIT),
            **_OPTIONS,
        },
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {"results": {"type": "array", "items": _PASSAGE}, "notice": {"type": "string"}},
        "required": ["results"],
    },
    run=search_documents,
)

DOCUMENTS_SEARCH_BATCH = ArchiveTool(
    name="documents_search_batch",
    title="Search documents for several things at once",
    description=(
        "Run several document searches in a single call: look up multiple topics, terms, keywords, questions or "
        "queries in the docs together. Runs all at once, in one go, in parallel, with fewer requests and round trips. "
        "Takes a batch of up to 10 queries; for a single one there is documents_search."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_QUERIES,
                "description": f"Array of search queries (max {MAX_QUERIES})",
                "items": {
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "maxLength": MAX_QUERY_CHARS,
                            "description": "Search query, as documents_search takes it",
                        },
                        "collections": _COLLECTIONS,
                    },
                    "required": ["query"],
                },
            },
            "limit": {**_limit_schema(DEFAULT_BATCH_LIMIT), "description": "Results per query"},
            **_OPTIONS,
        },
        "required": ["queries"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string"},
                        "results": {"type": "array", "items": _PASSAGE},
                        "notice": {"type": "string"},
                    },
                    "required": ["query", "results"],
                },
            }
        },
        "required": ["results"],
    },
    run=search_batch,
)

DOCUMENTS_FIND_RELATED = ArchiveTool(
    name="documents_find_related",
    title="Find related documents",
    description=(
        "Find content semantically related to a document or chunk that you have or are reading: more like this one, "
        "similar or comparable articles. Finds other documents on the same subject or topic, what else there is and "
        "which pages go with it, to see also or as further reading."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": {"type": "string", "description": "Collection containing the source (name or alias)"},
            "document": {**DOCUMENT_PARAMETER, "description": "Document ID to find related content for"},
            "chunk": {
                "type": "string",
                "maxLength": MAX_CHUNK_CHARS,
                "description": "Specific chunk content (if not provided, uses document centroid)",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "default": DEFAULT_RELATED_LIMIT,
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
                "properties": {**COLLECTION_SCHEMA, "document": {"type": "string"}},
                "required": ["collection", "document"],
            },
            "related": {
                "type": "array",
                "items": {
                    **_PASSAGE,
                    "properties": {**_PASSAGE["properties"], "document": {"type": "string"}},
                    "required": [*_PASSAGE["required"], "document"],
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["source", "related"],
    },
    run=find_related,
)
