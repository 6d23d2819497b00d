"""The local search provider: BM25Plus over the words of tools, and what they mean where a model is at hand."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from pointsman.providers import embeddings as static
from pointsman.providers.base import SearchHit, SearchHits, SearchRequest, ToolDocument
from pointsman.providers.bm25.explanation import Explainer
from pointsman.providers.bm25.prepared_tools import PreparedTools
from pointsman.providers.bm25.query import parse_all
from pointsman.providers.embeddings import Embedder, EmbeddingsUnavailableError
from pointsman.providers.numeric import load_numpy
from pointsman.providers.single_flight import SingleFlight

if TYPE_CHECKING:  # numpy is heavy: it comes with the first search, not with the gateway
    from pointsman.providers.bm25.index import Index

logger = logging.getLogger(__name__)

KEPT_INDEXES = 16
KEPT_TOOLS = 50_000  # in all of them together
INDEX_ASIDE_FROM = 1_000  # tools
INDEX_ASIDE_FROM_NEW = 50  # a new tool costs far more than a known one
SEARCH_ASIDE_FROM = 5_000  # tools, once for each query
SEARCH_ASIDE_FROM_CHARS = 4_000  # of all queries
LOAD_WAIT_S = 1.0  # for the model, where a search comes while it loads; then words alone answer

WITH_MEANING, WORDS_ALONE = "bm25+static", "bm25"  # names, as in the audit row

_Tools = tuple[ToolDocument, ...]
_Key = tuple[bool, _Tools]  # with vectors or without


class BM25SearchProvider:
    """Needs nothing from outside and always answers.

    The index of a set of tools is kept by the identity of its documents, and what is known about a tool by its
    content: callers that share their tools share the work, and a server that changes costs only its own tools.
    """

    def __init__(
        self,
        embeddings: bool | Callable[[], bool] = True,
        load: Callable[[], Embedder] = static.load,
        load_wait_s: float | None = None,  # None: until the model is there, or cannot be loaded
    ) -> None:
        self._embeddings = embeddings
        self._load = load
        self._load_wait_s = load_wait_s
        self._embedder: Embedder | None = None
        self._broken = False
        self._library = PreparedTools()
        self._indexes: OrderedDict[_Key, Index] = OrderedDict()
        self._loading: SingleFlight[None, Embedder] = SingleFlight()
        self._building: SingleFlight[_Key, Index] = SingleFlight()

    @property
    def name(self) -> str:
        return WITH_MEANING if self._wants_meaning() else WORDS_ALONE

    async def prepare(self) -> None:
        """Load in a thread what the first search would wait for: its modules and, unless switched off, the model."""
        try:
            await asyncio.to_thread(_load_modules)
        except Exception:
            logger.exception("search could not be prepared; the first search tries again")
            return
        if self._wants_meaning() and self._embedder is None:
            await self._load_embedder()
        logger.info("search is prepared (%s)", self.name)

    async def search(self, request: SearchRequest) -> SearchHits:
        tools = tuple(request.tools)
        if not tools:
            return SearchHits([], [0.0] * len(request.queries))
        embedder = await self._embedder_in_use()
        index = await self._index_of(tools, embedder)
        hits = await asyncio.to_thread(_search, index, request) if _takes_long(request) else _search(index, request)
        hits.ranked_by = WITH_MEANING if embedder is not None else WORDS_ALONE
        return hits

    def _wants_meaning(self) -> bool:
        wanted = self._embeddings() if callable(self._embeddings) else self._embeddings
        return wanted and not self._broken

    async def _embedder_in_use(self) -> Embedder | None:
        if not self._wants_meaning():
            return None
        if self._embedder is None:
            with suppress(TimeoutError):  # the load goes on in its thread, for the searches after this one
                async with asyncio.timeout(self._load_wait_s):
                    await self._load_embedder()
        return self._embedder

    async def _load_embedder(self) -> None:
        """Single-flight. Where it fails, words alone answer from then on."""
        try:
            self._embedder = await self._loading.run(None, self._load)
        except EmbeddingsUnavailableError as error:
            if not self._broken:
                logger.warning("search goes by words alone, because the embeddings do not load: %s", error)
            self._broken = True

    async def _index_of(self, tools: _Tools, embedder: Embedder | None) -> Index:
        key = (embedder is not None, tools)
        index = self._indexes.get(key)
        if index is not None:
            self._indexes.move_to_end(key)
            return index
        if self._costly(tools):
            index = await self._building.run(key, lambda: self._build(tools, embedder))
        else:
            index = self._build(tools, embedder)
        self._keep(key, index)
        return index

    def _costly(self, tools: _Tools) -> bool:
        """Whether indexing would hold up the event loop."""
        if len(tools) > INDEX_ASIDE_FROM:
            return True
        return sum(not self._library.knows(tool) for tool in tools) > INDEX_ASIDE_FROM_NEW

    def _build(self, tools: _Tools, embedder: Embedder | None) -> Index:
        load_numpy()
        from pointsman.providers.bm25.index import Index, Meaning

        if self._library.full:
            self._library = PreparedTools()
        library = self._library
        prepared = [library.prepared(tool) for tool in tools]
        meaning = Meaning(library.vectors(tools, prepared, embedder), embedder) if embedder else None
        return Index(tools, prepared, library.vocabulary, meaning)

    def _keep(self, key: _Key, index: Index) -> None:
        self._indexes[key] = index
        while len(self._indexes) > 1 and (len(self._indexes) > KEPT_INDEXES or self._kept_tools() > KEPT_TOOLS):
            self._indexes.popitem(last=False)

    def _kept_tools(self) -> int:
        return sum(len(tools) for _, tools in self._indexes)


def _load_modules() -> None:
    """By one search over nothing of anybody's, which also fills the tables that are made at first use."""
    load_numpy()
    from pointsman.providers.bm25.index import Index

    library, tool = PreparedTools(), ToolDocument("none:none", "none", "none", "None", {})
    index = Index([tool], [library.prepared(tool)], library.vocabulary, None)
    _search(index, SearchRequest(("none",), None, (tool,), 1))


def _takes_long(request: SearchRequest) -> bool:
    """Whether searching would hold up the event loop."""
    if len(request.tools) * len(request.queries) > SEARCH_ASIDE_FROM:
        return True
    return sum(map(len, request.queries)) + len(request.context or "") > SEARCH_ASIDE_FROM_CHARS


def _search(index: Index, request: SearchRequest) -> SearchHits:
    from pointsman.providers.bm25.exact import NOTE, put_first
    from pointsman.providers.bm25.fusion import fuse

    *queries, context = parse_all([*request.queries, request.context or ""])
    fits = [index.fit(query) for query in queries]
    named = [index.exact_names.rows(text) for text in request.queries]
    for fit, rows in zip(fits, named, strict=True):
        put_first(fit, rows)
    exact = frozenset(chain.from_iterable(named))
    explainer = Explainer(queries, context, index.vocabulary)
    hits = [
        SearchHit(
            index.tool_keys[hit.row],
            round(hit.relevance, 3),
            NOTE if hit.row in exact else explainer.explain(index.documents[hit.row], hit.intents),
            hit.intents,
        )
        for hit in fuse(fits, index.fit(context), request.max_results, exact)
    ]
    return SearchHits(hits, [round(float(fit.max()), 3) for fit in fits])
