"""`search_create_index`, `search_add_document` and `search_index`: full-text indexes that callers make themselves."""

from __future__ import annotations

import json
import re
from typing import get_args

from pointsman.archive.archive import Archive
from pointsman.archive.indexes.indexes import DEFAULT
from pointsman.archive.indexes.search import Found, search
from pointsman.archive.model.indexes import GAP, Backend, Entry, Index, IndexFullError, Tokenizer
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, ToolError
from pointsman.core.model import Json

BACKENDS: tuple[Backend, ...] = get_args(Backend)
MAX_NAME_CHARS = 64  # of an index
MAX_MIN_LENGTH = 20
MAX_ID_CHARS = 512
MAX_CONTENT_CHARS = 10_000_000
MAX_METADATA_BYTES = 65_536
MAX_QUERY_CHARS = 1_000
MAX_RESULTS = 100
_SHOWN_CHARS = 100
_SHOWN_NAMES = 20
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def create_index(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    name = _new_name(given)
    backend = _backend(arguments.get("backend"))
    config = given.inside("tokenizer_config")
    tokenizer = Tokenizer(
        config.flag("lowercase", True), config.integer("min_length", low=1, high=MAX_MIN_LENGTH, default=2)
    )
    try:
        created = archive.indexes.create(name, backend, tokenizer)
    except IndexFullError as error:
        raise ToolError("Too many indexes", code="limit_reached", help=str(error), as_object=True) from None
    if not created:
        raise ToolError(
            f"Index already exists: {name}",
            code="already_exists",
            help="Add documents to it with search_add_document, or choose another name.",
            as_object=True,
        )
    return {
        "status": "created",
        "index_name": name,
        "backend": backend,
        "tokenizer_config": {"lowercase": tokenizer.lowercase, "min_length": tokenizer.min_length},
    }


def _new_name(given: Arguments) -> str:
    name = given.text("index_name")
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise given.failure("index_name", f"must be 1 to {MAX_NAME_CHARS} letters, digits, `-` and `_`")
    return name


def _backend(value: object) -> Backend:
    if value is None:
        return "memory"
    for backend in BACKENDS:
        if value == backend:
            return backend
    raise ToolError(
        f"Unknown backend: {str(value)[:_SHOWN_CHARS]}",
        code="invalid_parameters",
        help="Use `memory` or `sqlite`.",
        as_object=True,
    )


def add_document(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    index = _find_index(archive, given)
    doc_id = given.text("doc_id", at_most=MAX_ID_CHARS)
    content = arguments.get("content")
    if not isinstance(content, str) or not content.strip():
        raise ToolError("Content must be a non-empty string", code="invalid_parameters", as_object=True)
    entry = Entry(doc_id, given.text("content", at_most=MAX_CONTENT_CHARS), _metadata(given))
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
    except (ValueError, RecursionError):  # NaN, an unpaired surrogate, or nested too deeply
        raise given.failure("metadata", "must be plain JSON") from None
    if size > MAX_METADATA_BYTES:
        raise given.failure("metadata", f"must take at most {MAX_METADATA_BYTES} bytes as JSON")
    return metadata


def search_index(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    query = given.text("query", at_least=0, at_most=MAX_QUERY_CHARS)
    k = given.integer("k", low=1, high=MAX_RESULTS, default=10)
    index = _find_index(archive, given)
    found = search(index, query, k)
    answer: Json = {
        "results": [hit.as_json() for hit in found.hits],
        "total_matches": found.total,
        "query_parsed": found.query.as_json(),
    }
    notice = _notice(query, found, index.tokenizer.min_length)
    return answer | ({"notice": notice} if notice else {})


def _notice(query: str, found: Found, min_length: int) -> str:
    if found.query.has_words or not query.strip():
        return ""
    if found.query.must_not:
        return "The query has exclusions only. Add a word to search for."
    return f"The query has no word that this index holds: words have at least {min_length} characters."


def _find_index(archive: Archive, given: Arguments) -> Index:
    """Raises ToolError: no index has this name."""
    name = given.optional_text("index_name", at_least=0) if given.has("index_name") else DEFAULT
    index = archive.indexes.find(name or "")
    if index is None:
        names = archive.indexes.names()
        existing = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        raise ToolError(
            f"Index not found: {(name or '')[:_SHOWN_CHARS]}",
            code="not_found",
            help=f"Existing indexes: {existing}. Create one with search_create_index.",
            as_object=True,
        )
    return index


_INDEX_NAME: Json = {"type": "string", "description": "Which index; `default` is always there", "default": DEFAULT}

SEARCH_CREATE_INDEX = ArchiveTool(
    name="search_create_index",
    title="Create a search index",
    description=(
        "Create a new named search index: set up, make or start a fresh, separate, empty index as a place for content "
        "of your own, with its own tokenizer. Fails when the name is taken. All who share this archive see its "
        "indexes."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "index_name": {
                "type": "string",
                "description": "Name of the new index: letters, digits, - and _",
                "pattern": "^[A-Za-z0-9_-]+$",
                "minLength": 1,
                "maxLength": MAX_NAME_CHARS,
            },
            "backend": {
                "type": "string",
                "description": "Where it is kept: memory (gone at a restart) or sqlite (kept)",
                "enum": list(BACKENDS),
                "default": "memory",
            },
            "tokenizer_config": {
                "type": "object",
                "description": "How text is cut into words",
                "properties": {
                    "lowercase": {"type": "boolean", "description": "Fold upper case", "default": True},
                    "min_length": {
                        "type": "integer",
                        "description": "Shorter words cannot be looked for",
                        "minimum": 1,
                        "maximum": MAX_MIN_LENGTH,
                        "default": 2,
                    },
                },
            },
        },
        "required": ["index_name"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["created"]},
            "index_name": {"type": "string"},
            "backend": {"type": "string", "enum": list(BACKENDS)},
            "tokenizer_config": {
                "type": "object",
                "properties": {"lowercase": {"type": "boolean"}, "min_length": {"type": "integer"}},
            },
        },
        "required": ["status", "index_name", "backend"],
    },
    run=create_index,
    read_only=False,
    idempotent=False,
)

SEARCH_ADD_DOCUMENT = ArchiveTool(
    name="search_add_document",
    title="Index a text",
    description=(
        "Add or update a document in a search index: index this text so that you and others can find it later. Puts "
        "in, stores, saves, uploads, feeds in or ingests a note, page, article, FAQ, transcript, summary or minutes, "
        "the following or the text below, makes it searchable and lets it turn up when somebody looks for it in the "
        "archive or knowledge base. A document with the same doc_id is replaced: re-indexed with the new, changed or "
        "corrected version. Without index_name it goes into the `default` index, in memory."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "doc_id": {
                "type": "string",
                "description": "Unique id of the document in its index",
                "minLength": 1,
                "maxLength": MAX_ID_CHARS,
            },
            "content": {
                "type": "string",
                "description": "The text to index",
                "minLength": 1,
                "maxLength": MAX_CONTENT_CHARS,
            },
            "metadata": {"type": "object", "description": "Anything to be returned with the document when it is found"},
            "index_name": _INDEX_NAME,
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
    run=add_document,
    read_only=False,
)

SEARCH_INDEX = ArchiveTool(
    name="search_index",
    title="Search an index",
    description=(
        "Search an index that you made: query it for words or a phrase, and get the entries and records that match or "
        "mention them, ranked, with TF-IDF scores, highlights and metadata. `+word` must be there, `-word` must not, "
        '`"a phrase"` is an exact match.'
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": 'Words to look for; +word, -word and "phrase" are understood',
                "maxLength": MAX_QUERY_CHARS,
            },
            "k": {
                "type": "integer",
                "description": "How many results at most",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "default": 10,
            },
            "index_name": _INDEX_NAME,
        },
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "doc_id": {"type": "string"},
                        "score": {"type": "number", "description": "TF-IDF: comparable within one answer"},
                        "highlights": {
                            "type": "array",
                            "description": "Where it matches: plain text, with HTML escaped",
                            "items": {"type": "string"},
                            "maxItems": 3,
                        },
                        "metadata": {"type": "object"},
                    },
                    "required": ["doc_id", "score", "highlights", "metadata"],
                },
            },
            "total_matches": {"type": "integer"},
            "query_parsed": {
                "type": "object",
                "properties": {
                    name: {"type": "array", "items": {"type": "string"}}
                    for name in ("terms", "must", "must_not", "phrases")
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["results", "total_matches", "query_parsed"],
    },
    run=search_index,
)
