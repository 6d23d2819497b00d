"""`context_search`: what this project has decided, learned and noted, by meaning and by words."""

from __future__ import annotations

import time

from pointsman.archive.archive import Archive
from pointsman.archive.context.search import (
    ContextHit,
    Found,
    NoContextError,
    NoProviderError,
    NoVectorsYetError,
    QueryNotEmbeddedError,
)
from pointsman.archive.model.context import TYPES, ItemFilter
from pointsman.archive.store.errors import StoreError
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, ToolError, store_code
from pointsman.core.model import Json

MIN_QUERY, MAX_QUERY = 3, 500
MAX_CONTENT = 2_000  # characters of an item that are shown
GREP = "Use grep_codebase for text search"
NO_PROVIDER = (
    "No embedding provider is configured, and text search found nothing. Embeddings are generated once the operator "
    "sets POINTSMAN_ARCHIVE_EMBEDDINGS to a value other than `none`."
)
HOW_TO_FILL = (
    "Nothing has been recorded for this project yet. Put notes into `.context/` of a root, or add them with "
    "`pointsman archive context add` and `pointsman archive context import`."
)


def context_search(archive: Archive, given: Json, call: Call) -> Json:
    began = time.monotonic()
    arguments = Arguments(given, as_object=True)
    query = _query(arguments, given)
    kind = arguments.choice("type", ("all", *TYPES), default="all")
    wanted = ItemFilter(None if kind == "all" else kind, arguments.optional_text("module", at_most=200))
    limit = arguments.integer("limit", low=1, high=20, default=5)
    found = _search(archive, query, wanted, limit)
    answer: Json = {
        "results": [_shown(hit) for hit in found.hits],
        "query": query,
        "totalFound": found.total,
        "searchTime": round(1000 * (time.monotonic() - began)),
    }
    if found.notice:
        answer["notice"] = found.notice
    return answer


def _query(arguments: Arguments, given: Json) -> str:
    """The specification defines its own texts for a query of invalid length."""
    query = given.get("query")
    if isinstance(query, str) and len(query.strip()) < MIN_QUERY:
        raise _invalid_length(f"Query must be at least {MIN_QUERY} characters")
    if isinstance(query, str) and len(query) > MAX_QUERY:
        raise _invalid_length(f"Query must be at most {MAX_QUERY} characters")
    return arguments.text("query", at_least=MIN_QUERY, at_most=MAX_QUERY)


def _invalid_length(message: str) -> ToolError:
    return ToolError(message, code="invalid_parameters", as_object=True)


def _search(archive: Archive, query: str, wanted: ItemFilter, limit: int) -> Found:
    try:
        return archive.context.search(query, wanted, limit)
    except StoreError as error:
        raise ToolError(
            "Search failed",
            code=store_code(error),
            as_object=True,
            message=str(error),
            fallback="Try using grep_codebase for text search",
        ) from error
    except NoContextError:
        raise ToolError(
            "No embeddings found. Run initial session to generate context.",
            code="no_embeddings",
            as_object=True,
            fallback=GREP,
            help=HOW_TO_FILL,
        ) from None
    except NoProviderError as error:
        raise _no_embeddings(NO_PROVIDER if error.recorded else f"{NO_PROVIDER} {HOW_TO_FILL}") from None
    except NoVectorsYetError:
        raise _no_embeddings() from None
    except QueryNotEmbeddedError as error:
        raise ToolError(
            "Failed to generate query embedding",
            code="embedding_failed",
            as_object=True,
            details=str(error),
            help="`results` has what text search found.",
            results=[_shown(hit) for hit in error.by_text.hits],
        ) from None


def _no_embeddings(help_: str = "") -> ToolError:
    return ToolError(
        "No embeddings available",
        code="no_embeddings",
        help=help_,
        as_object=True,
        suggestion=GREP,
        action="Embeddings will be generated in background",
    )


def _shown(hit: ContextHit) -> Json:
    item = hit.item
    shown: Json = {
        "id": item.id,
        "type": item.type,
        "content": item.content[:MAX_CONTENT],
        "module": item.module,
        "session": item.session,
        "date": item.date,
        "score": hit.score,
        "source": item.source,
    }
    if item.title:
        shown["title"] = item.title
    if item.path:
        shown["path"] = item.path
    if len(item.content) > MAX_CONTENT:
        shown["truncated"] = True
    return {name: value for name, value in shown.items() if value is not None}


_RESULT: Json = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"enum": [*TYPES, "session", "code"]},
        "content": {"type": "string", "description": f"The text, its first {MAX_CONTENT} characters."},
        "module": {"type": "string"},
        "session": {"type": "string"},
        "date": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "source": {"enum": ["discovery", "session", "code"]},
        "title": {"type": "string"},
        "path": {"type": "string"},
        "truncated": {"type": "boolean"},
    },
    "required": ["id", "type", "content", "date", "score", "source"],
}

CONTEXT_SEARCH = ArchiveTool(
    name="context_search",
    title="Why we did it, and the code that does it",
    description=(
        "Search project context by meaning: why we chose, decided or dropped something, and the code that does it. "
        "Tells why we chose, changed, switched, moved or dropped it: the reason, story and background of a decision, "
        "the objections, who proposed or argued what, what was discussed, talked about, tried, agreed on or ruled "
        "before, how it ended, and if it is still in force. Recalls what we found out, concluded, learned, wrote down"
        " or recorded in earlier sessions: notes, lessons, root causes, known issues, how a problem was solved and "
        "how we usually do it. Finds code by what it does when you can't remember its name: the function, helper, "
        "logic or part of our software, repo or backend that handles, validates, detects, computes or is responsible "
        "for something. Returns discoveries, sessions and code snippets."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": MIN_QUERY,
                "maxLength": MAX_QUERY,
                "description": "Search query describing what to find: a question, or what the code does",
            },
            "type": {
                "type": "string",
                "enum": ["all", *TYPES],
                "default": "all",
                "description": "Filter by discovery type",
            },
            "module": {"type": "string", "description": "Filter by module name"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 20,
                "default": 5,
                "description": "Maximum number of results to return",
            },
        },
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": {"type": "array", "items": _RESULT},
            "query": {"type": "string"},
            "totalFound": {"type": "integer"},
            "searchTime": {"type": "integer", "description": "In milliseconds."},
            "notice": {"type": "string"},
        },
        "required": ["results", "query", "totalFound", "searchTime"],
    },
    run=context_search,
)
