"""`searchLocalArchives`: whole documents of the research and URL archives, with citations in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.archive.archive import Archive
from pointsman.archive.search.query_parser import parse
from pointsman.archive.shipped import without_pages
from pointsman.archive.store.errors import StoreError
from pointsman.archive.tools.arguments import INVALID, Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, ToolError, store_code, store_help
from pointsman.core.model import Json
from pointsman.providers.embeddings import load_numpy

if TYPE_CHECKING:
    from pointsman.archive.local_archives.search import Found, Hit
    from pointsman.archive.store.archives import ArchiveView, Graph, Reference

FAILED = "Failed to search local archives"
MAX_RESULTS = 50
MAX_DEPTH = 3
MAX_NODES = 200
_MAX_REFERENCES = 20  # of a document, in each direction


def search_local_archives(archive: Archive, arguments: Json, call: Call) -> Json:
    try:
        return _answer(archive, Arguments(arguments))
    except ToolError as error:
        reason = error.error.removeprefix(f"{INVALID}: ")
        raise ToolError(f"{FAILED}: {reason}", code=error.code, help=error.help, **error.fields) from None
    except StoreError as error:
        raise ToolError(f"{FAILED}: {error}", code=store_code(error), help=store_help(error)) from error


def _answer(archive: Archive, given: Arguments) -> Json:
    text = given.text("query", at_least=0)
    fuzzy = given.flag("fuzzy", True)
    include_citations = given.flag("includeCitations", False)
    depth = given.integer("citationDepth", low=1, high=MAX_DEPTH, default=1)
    limit = given.integer("limit", low=1, high=MAX_RESULTS, default=10)
    load_numpy()
    from pointsman.archive.local_archives.search import search  # deferred: imports numpy

    query = without_pages(archive.storage, parse(text))
    with archive.storage.archives.reading() as view:
        found = search(view, text, query, fuzzy, limit)
        answer: Json = {"results": [_result(view, hit, include_citations) for hit in found.hits]}
        if include_citations and found.hits:
            answer["citationGraph"] = _graph(view.graph([hit.number for hit in found.hits], depth, MAX_NODES))
    answer["metadata"] = {
        "totalResults": len(found.hits),
        "query": text,
        "fuzzy": fuzzy,
        "includeCitations": include_citations,
        "citationDepth": depth,
        "limit": limit,
        **_more(found),
        **({"notices": list(query.notices)} if query.notices else {}),
    }
    return answer


def _more(found: Found) -> Json:
    """Fields beyond the specification: the number of matches, and corrected words."""
    more: Json = {"totalMatches": found.matches}
    if found.corrections:
        more["corrections"] = [{"word": word, "to": list(to)} for word, to in found.corrections.items()]
        more["didYouMean"] = found.did_you_mean
    return more


def _result(view: ArchiveView, hit: Hit, include_citations: bool) -> Json:
    document = hit.document
    result: Json = {
        "document": {
            "id": document.id,
            "title": document.title,
            "path": document.path,
            "source": document.source,
            "date": document.date,
            "score": hit.score,
        },
        "highlights": [
            {"field": field, "snippets": list(snippets)}
            for field, snippets in (("title", (hit.title,) if hit.title else ()), ("content", hit.snippets))
            if snippets
        ],
    }
    if include_citations:
        references = view.references(hit.number, _MAX_REFERENCES)
        result["citations"] = {
            "citing": [_citation(each) for each in references.citing],
            "cited": [_citation(each) for each in references.cited],
            **({"more": references.more} if references.more else {}),
        }
    return result


def _citation(reference: Reference) -> Json:
    return {
        "sourceId": reference.source,
        "targetId": reference.target,
        "targetUrl": reference.url,
        "context": reference.context,
        "confidence": reference.confidence,
    }


def _graph(graph: Graph) -> Json:
    return {
        "nodes": [
            {"id": node.id, "label": node.label, "type": node.kind, **({"url": node.url} if node.url else {})}
            for node in graph.nodes
        ],
        "edges": [{"from": edge.source, "to": edge.target, "confidence": edge.confidence} for edge in graph.edges],
        "truncated": graph.truncated,
    }


_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "number", "minimum": 0, "maximum": 1}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


_CITATIONS = _list(
    _object(sourceId=_TEXT, targetId={"type": ["string", "null"]}, targetUrl=_TEXT, context=_TEXT, confidence=_NUMBER)
)

SEARCH_LOCAL_ARCHIVES = ArchiveTool(
    name="searchLocalArchives",
    title="Search saved web pages and research",
    description=(
        "Searches the local research and URL content archives: find the web pages, links, articles, papers and notes "
        "that you saved, kept or bookmarked. Finds earlier research and what you downloaded, archived or read a while"
        " ago. With includeCitations each result says which source it quotes or cites and who cites it. Understands "
        '+must, -not, "a phrase", collection:, source:, tag:, after: and before:; a date alone lists what is new '
        "since then."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "The search query"},
            "fuzzy": {"type": "boolean", "description": "Whether to enable fuzzy matching", "default": True},
            "includeCitations": {
                "type": "boolean",
                "description": "Whether to include citation information",
                "default": False,
            },
            "citationDepth": {
                "type": "integer",
                "description": "How many levels of citations to include",
                "default": 1,
                "minimum": 1,
                "maximum": MAX_DEPTH,
            },
            "limit": {
                "type": "integer",
                "description": "Maximum number of results to return",
                "default": 10,
                "minimum": 1,
                "maximum": MAX_RESULTS,
            },
        },
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": _list(
                {
                    "type": "object",
                    "properties": {
                        "document": _object(
                            id=_TEXT,
                            title=_TEXT,
                            path=_TEXT,
                            source={"enum": ["research", "url"]},
                            date=_TEXT,
                            score=_NUMBER,
                        ),
                        "highlights": _list(_object(field={"enum": ["title", "content"]}, snippets=_list(_TEXT))),
                        "citations": {
                            "type": "object",
                            "properties": {"citing": _CITATIONS, "cited": _CITATIONS, "more": {"type": "integer"}},
                            "required": ["citing", "cited"],
                        },
                    },
                    "required": ["document", "highlights"],
                }
            ),
            "citationGraph": _object(
                nodes=_list(
                    {
                        "type": "object",
                        "properties": {
                            "id": _TEXT,
                            "label": _TEXT,
                            "type": {"enum": ["source", "target", "external"]},
                            "url": _TEXT,
                        },
                        "required": ["id", "label", "type"],
                    }
                ),
                edges=_list(_object(**{"from": _TEXT, "to": _TEXT, "confidence": _NUMBER})),
                truncated={"type": "boolean"},
            ),
            "metadata": {
                "type": "object",
                "properties": {
                    "totalResults": {"type": "integer"},
                    "query": _TEXT,
                    "fuzzy": {"type": "boolean"},
                    "includeCitations": {"type": "boolean"},
                    "citationDepth": {"type": "integer"},
                    "limit": {"type": "integer"},
                    "totalMatches": {"type": "integer"},
                    "corrections": _list(_object(word=_TEXT, to=_list(_TEXT))),
                    "didYouMean": {"type": ["string", "null"]},
                    "notices": _list(_TEXT),
                },
                "required": ["totalResults", "query", "fuzzy", "includeCitations", "citationDepth", "limit"],
            },
        },
        "required": ["results", "metadata"],
    },
    run=search_local_archives,
)
