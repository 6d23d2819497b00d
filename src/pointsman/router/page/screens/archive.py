"""The archive: search with marks, passages, who cites whom, and what the collections hold.

The archive is a program of its own. The page asks it by its tools, as the owner does with `pointsman tools call`.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from pointsman.catalog.names import display_name
from pointsman.core.model import Json
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.operations import call
from pointsman.router.owner.parts import Parts
from pointsman.router.page.graph import MAX_NODES, draw_graph
from pointsman.router.page.registry import Screen
from pointsman.router.page.view import CLIENT, View

PATH = "/page/archive"
VIEWS = {"documents": "Documents", "passages": "Passages", "graph": "Citations"}
DOCUMENTS = 20  # of one search
IN_GRAPH = 8  # documents from which the graph starts; more would not be readable
PASSAGES = 20
LISTED = 50  # documents of a collection on one page
MAX_CHARS = 20_000  # of a document that is shown at once
MAX_QUERY_CHARS = 1000
MAX_HEADINGS = 200
STALLED_S = 60.0  # a run that has written nothing for so long has ended, or reads one very large file
LOOK_S = 5.0  # how often the figures are read again while something is under way
_MARK = re.compile(r"(</?mark>)")
_WORD = re.compile(r"\w{2,}")
_BLANK_LINES = re.compile(r"\n\s*\n")

_under_way: dict[tuple[Path, str], bool] = {}  # by state folder and server: what the last look has seen


async def show(view: View) -> Response:
    servers = _archives(view.parts)
    chosen = view.query("server") or next(iter(servers), "")
    if chosen and chosen not in servers:
        raise OwnerError("unknown_server", f"There is no archive `{chosen[:64]}`.")
    query = view.query("q")[:MAX_QUERY_CHARS].strip()
    kind = view.query("view") if view.query("view") in VIEWS else "documents"
    context: dict[str, Any] = {"servers": servers, "server": chosen, "query": query, "kind": kind, "views": VIEWS}
    state = _state(view.parts, chosen) if chosen else ""
    if state != "running":
        return view.render("archive.html", state=state, reason=_reason(view.parts, chosen), **context)
    try:
        found = await _found(view, chosen, query, kind) if query else None
        collections = await _collections(view.parts, chosen) if not query else None
    except OwnerError as error:
        return view.render("archive.html", state="failing", reason=str(error), **context)
    return view.render("archive.html", state=state, found=found, collections=collections, **context)


async def show_collection(view: View) -> Response:
    server_id, collection, page = (
        _required(view, "server"),
        _required(view, "collection"),
        view.number("page", 1, 100_000),
    )
    _require_archive(view.parts, server_id)
    arguments = {"collection": collection, "limit": LISTED, "offset": (page - 1) * LISTED}
    listed = await _ask(view.parts, server_id, "documents_list_documents", arguments)
    return view.render(
        "archive_collection.html",
        server=server_id,
        collection=collection,
        documents=[one | {"address": _document(server_id, collection, one["id"])} for one in listed["documents"]],
        total=listed["total"],
        page=page,
        more=listed["hasMore"],
    )


async def show_document(view: View) -> Response:
    server_id, collection, document = (_required(view, name) for name in ("server", "collection", "document"))
    _require_archive(view.parts, server_id)
    named = {"collection": collection, "document": document}
    outline = await _ask(view.parts, server_id, "documents_get_outline", named | {"maxDepth": 3})
    section = view.query("section")
    tool, more = ("documents_get_section", {"section": section}) if section else ("documents_get_document", {})
    read = await _ask(view.parts, server_id, tool, named | more)
    text = str(read.get("content", ""))
    part = view.number("page", 1)
    return view.render(
        "archive_document.html",
        server=server_id,
        collection=collection,
        document=document,
        title=outline["title"],
        outline=outline["outline"][:MAX_HEADINGS],
        section=section,
        pieces=marked_words(text[(part - 1) * MAX_CHARS : part * MAX_CHARS], view.query("q")),
        page=part,
        more=len(text) > part * MAX_CHARS,
        around=_search(server_id, f'"{outline["title"]}" collection:{collection}', "graph"),
    )


def marks(snippet: str) -> Markup:
    """The archive's excerpt, whose only tags are its marks, as HTML of our own."""
    return _in_marks(
        (html.unescape(piece), index % 4 == 2) for index, piece in enumerate(_MARK.split(snippet)) if index % 2 == 0
    )


def marked_words(text: str, query: str) -> Markup:
    """A text with the words of a query marked."""
    words = sorted({word.lower() for word in _WORD.findall(query)}, key=len, reverse=True)[:20]
    if not words:
        return _in_marks([(text, False)])
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})", re.IGNORECASE)
    return _in_marks((piece, index % 2 == 1) for index, piece in enumerate(pattern.split(text)))


def _in_marks(pieces: Iterable[tuple[str, bool]]) -> Markup:
    return Markup("").join(
        Markup("<mark>{}</mark>").format(piece) if is_marked else Markup("{}").format(piece)
        for piece, is_marked in pieces
    )


# ------------------------------------------------------------------ searches


async def _found(view: View, server_id: str, query: str, kind: str) -> Json:
    if kind == "passages":
        given = {"query": query, "limit": PASSAGES}
        answer = await _ask(view.parts, server_id, "documents_search", given)
        passages = [_passage(server_id, one, query) for one in answer["results"]]
        return {"passages": passages, "notice": answer.get("notice"), "corrected": None}
    limit = IN_GRAPH if kind == "graph" else DOCUMENTS
    given = {"query": query, "limit": limit, "includeCitations": True, "citationDepth": 1}
    answer = await _ask(view.parts, server_id, "searchLocalArchives", given)
    graph, about = answer.get("citationGraph") or {"nodes": [], "edges": []}, answer["metadata"]
    return {
        "documents": [_result(server_id, one, query) for one in answer["results"]],
        "total": about.get("totalMatches", about["totalResults"]),
        "corrected": about.get("didYouMean"),
        "notice": " ".join(about.get("notices", ())),
        "cut": len(graph["nodes"]) > MAX_NODES or graph.get("truncated", False),
        "nodes": len(graph["nodes"]),
        "edges": len(graph["edges"]),
        "svg": draw_graph(graph, f"Citations around {query}", lambda one: _by_full_id(server_id, one))
        if kind == "graph" and graph["nodes"]
        else None,
    }


def _result(server_id: str, one: Json, query: str) -> Json:
    document, citations = one["document"], one.get("citations", {})
    fields = {each["field"]: each["snippets"] for each in one["highlights"]}
    return {
        "title": marks(fields["title"][0]) if "title" in fields else document["title"],
        "snippets": [marks(each) for each in fields.get("content", ())],
        "id": document["id"],
        "date": document["date"],
        "score": document["score"],
        "cites": len(citations.get("citing", ())),
        "cited": len(citations.get("cited", ())),
        "address": _by_full_id(server_id, document["id"], query),
    }


def _passage(server_id: str, one: Json, query: str) -> Json:
    collection = str(one.get("collectionId") or one["collection"])
    return {
        "title": one["documentTitle"],
        "heading": one.get("sectionHeading"),
        "collection": one["collection"],
        "text": marked_words(_BLANK_LINES.sub("\n", one["content"]), query),
        "score": one["relevanceScore"],
        "place": f"{one['chunkIndex']} of {one['totalChunks']}" if "chunkIndex" in one else "",
        "address": _document(server_id, collection, one["documentId"], query),
    }


async def _collections(parts: Parts, server_id: str) -> Json:
    """What the archive holds, and what is under way."""
    answer = await _ask(parts, server_id, "documents_list_collections", {"statistics": True})
    figures = answer.get("statistics") or {}
    passages = figures.get("passages", {})
    now = time.time()
    runs = [
        {"skipped": 0}
        | run
        | {"state": _run_state(run, now), "ago_s": now - float(run.get("updated") or run["started"])}
        for run in figures.get("ingest", ())
    ]
    total = sum(passages.values())
    waiting = figures.get("waiting", 0)
    busy = any(run["state"] == "running" for run in runs) or (waiting > 0 and figures.get("embeddings", False))
    _under_way[parts.state_dir, server_id] = busy
    return {
        "list": [_collection(server_id, one, passages, runs) for one in answer["collections"]],
        "notice": answer.get("notice"),
        "bytes": figures.get("bytes", 0),
        "passages": total,
        "vectors": figures.get("vectors", []),
        "done": max(total - waiting, 0),
        "waiting": waiting,
        "embeddings": figures.get("embeddings", False),
        "problem": figures.get("problem"),
        "runs": [run for run in runs if run["state"] != "ended"],
    }


def _collection(server_id: str, one: Json, passages: Json, runs: Iterable[Json]) -> Json:
    name = str(one.get("collectionId") or one["collection"])
    return {
        "version": "",
        "description": "",
        **one,
        "name": name,
        "passages": passages.get(name, 0),
        "run": next((run for run in runs if run["collection"] == name), None),
        "address": f"{PATH}/collection?{urlencode({'server': server_id, 'collection': name})}",
    }


def _run_state(run: Json, now: float) -> str:
    if run.get("ended"):
        return "ended"
    return "running" if now - float(run.get("updated") or run["started"]) < STALLED_S else "stalled"


# ------------------------------------------------------------------ the archive's tools


async def _ask(parts: Parts, server_id: str, tool: str, arguments: Json) -> Json:
    """Call a tool of the archive as the owner. Raises OwnerError with the archive's own sentence."""
    answer = await call(parts, f"{server_id}:{tool}", arguments, {}, CLIENT)
    result = answer.get("structuredContent")
    if isinstance(result, dict) and isinstance(result.get("result"), dict):
        result = result["result"]
    if answer.get("isError") or not isinstance(result, dict):
        texts = [part["text"] for part in answer.get("content", ()) if part.get("type") == "text"]
        code = "unknown_document" if isinstance(result, dict) and result.get("code") == "not_found" else "archive"
        raise OwnerError(code, " ".join(texts)[:1000] or "The archive gave no answer.")
    return result


def _archives(parts: Parts) -> dict[str, str]:
    """The names of the archives, by the ids of their servers."""
    servers = parts.current.config.servers.items()
    return {one: display_name(one, server) for one, server in servers if server.bundled == "archive"}


def _require_archive(parts: Parts, server_id: str) -> None:
    if server_id not in _archives(parts):
        raise OwnerError("unknown_server", f"There is no archive `{server_id[:64]}`.")


def _state(parts: Parts, server_id: str) -> str:
    if not parts.current.config.servers[server_id].enabled:
        return "switched off"
    running = parts.fleet.servers.get(server_id)
    return running.status.shown if running is not None else "stopped"


def _reason(parts: Parts, server_id: str) -> str:
    running = parts.fleet.servers.get(server_id)
    return running.status.reason if running is not None else ""


def _required(view: View, name: str) -> str:
    value = view.query(name)
    if not value:
        raise OwnerError("unknown_document", f"The address lacks `{name}`.")
    return value[:MAX_QUERY_CHARS]


def _by_full_id(server_id: str, full: str, query: str = "") -> str | None:
    """The address of a document whose id begins with its collection."""
    collection, slash, document = full.partition("/")
    return _document(server_id, collection, document, query) if slash else None


def _document(server_id: str, collection: str, document: str, query: str = "") -> str:
    given = {"server": server_id, "collection": collection, "document": document, **({"q": query} if query else {})}
    return f"{PATH}/document?{urlencode(given)}"


def _search(server_id: str, query: str, kind: str) -> str:
    return f"{PATH}?{urlencode({'server': server_id, 'q': query, 'view': kind})}"


async def _changes(parts: Parts, server_id: str) -> object:
    """The state of the server; while something is read or computed, another value every few seconds."""
    busy = _under_way.get((parts.state_dir, server_id), False)
    known = server_id in _archives(parts)
    return _state(parts, server_id) if known else "", int(time.monotonic() // LOOK_S) if busy else 0


SCREEN = Screen(
    name="archive",
    title="Archive",
    icon="archive",
    path=PATH,
    routes=[
        ("GET", PATH, show),
        ("GET", PATH + "/collection", show_collection),
        ("GET", PATH + "/document", show_document),
    ],
    topics={"archive": _changes},
)
