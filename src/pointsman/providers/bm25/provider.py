"""The local search provider: BM25Plus over the words of tools, combined with embeddings if the model is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pointsman.core.rounds import giving_way
from pointsman.providers import embeddings as static
from pointsman.providers.base import SearchHits, SearchRequest, ToolDocument
from pointsman.providers.bm25.documents import PreparedTools
from pointsman.providers.disk_cache import DiskCache
from pointsman.providers.embeddings import Embedder, EmbeddingsUnavailableError, load_numpy
from pointsman.providers.semantic.tool_encoder import ToolEncoder
from pointsman.providers.single_flight import SingleFlight

if TYPE_CHECKING:  # numpy is heavy: it is loaded with the first search, not with the gateway
    from pointsman.providers.bm25.index import Index

logger = logging.getLogger(__name__)

FILE = "search-tools.db"  # of prepared tools
KEPT_INDEXES = 16
KEPT_TOOLS = 50_000  # in all of them together
# Above these, the work is done in a thread and not on the event loop.
INDEX_INLINE_TOOLS = 1_000
INDEX_INLINE_NEW_TOOLS = 50  # a new tool costs far more than a known one
SEARCH_INLINE_TOOLS = 5_000  # counted once for each query
SEARCH_INLINE_CHARS = 4_000  # of all queries
LOAD_WAIT_S = 1.0  # how long a search waits for the model to load before it uses words alone

# Names, as in the audit row.
WORDS_ALONE, WITH_MEANING, WITH_SENTENCES = "bm25", "bm25+static", "bm25+static+minilm"

_Tools = tuple[ToolDocument, ...]
_Key = tuple[bool, _Tools]  # with vectors or without


class BM25SearchProvider:
    """Needs no service and always answers.

    An index is cached by the identity of its documents, and a prepared tool by its content: callers that share tools
    share the work, and a server that changes costs only its own tools.
    """

    def __init__(
        self,
        embeddings: bool | Callable[[], bool] = True,
        load: Callable[[], Embedder] = static.load,
        load_wait_s: float | None = None,  # None: until the model is loaded or has failed to load
        encoder: ToolEncoder | None = None,
        disk: DiskCache | None = None,  # of prepared tools, for the next start; None: in memory only
    ) -> None:
        self._embeddings = embeddings
        self._load = load
        self._load_wait_s = load_wait_s
        self._encoder = encoder
        self._embedder: Embedder | None = None
        self._broken = False
        self._prepared_tools = PreparedTools(disk=disk)
        self._saving: set[asyncio.Task[None]] = set()
        self._indexes: OrderedDict[_Key, Index] = OrderedDict()
        self._loading: SingleFlight[None, Embedder] = SingleFlight()
        self._building: SingleFlight[_Key, Index] = SingleFlight()

    @property
    def name(self) -> str:
        return _name(self._wants_meaning(), self._encoder is not None and self._encoder.in_use)

    async def prepare(self) -> None:
        """Load in two threads what the first search needs: its modules and, unless switched off, the model."""
        try:
            await asyncio.gather(asyncio.to_thread(_load_modules), self._load_model())
        except Exception:
            logger.exception("search could not be prepared; the first search will retry")
            return
        logger.info("search is ready (%s)", _name(self._wants_meaning(), sentences=False))

    async def prepare_tools(self, tools: Sequence[ToolDocument]) -> None:
        """Index tools before they are searched. A search that comes meanwhile waits for the same work."""
        if tools:
            await self._index_of(tuple(tools), await self._embedder_in_use())
            self._save()

    async def search(self, request: SearchRequest) -> SearchHits:
        tools = tuple(request.tools)
        if not tools:
            return SearchHits([], [0.0] * len(request.queries))
        embedder = await self._embedder_in_use()
        index = await self._index_of(tools, embedder)
        from pointsman.providers.bm25.ranking import rank  # needs numpy, which is loaded by now

        encoded = await self._encoder.encoded(tools) if self._encoder and embedder else None
        if encoded or _is_long(request):
            hits = await asyncio.to_thread(rank, index, request, encoded)
        else:
            hits = rank(index, request)
        hits.ranked_by = _name(embedder is not None, encoded is not None)
        self._save()
        return hits

    def _wants_meaning(self) -> bool:
        wanted = self._embeddings() if callable(self._embeddings) else self._embeddings
        return wanted and not self._broken

    async def _embedder_in_use(self) -> Embedder | None:
        if not self._wants_meaning():
            return None
        if self._embedder is None:
            with suppress(TimeoutError):  # loading continues in its thread, for later searches
                async with asyncio.timeout(self._load_wait_s):
                    await self._load_embedder()
        return self._embedder

    async def _load_model(self) -> None:
        if self._wants_meaning() and self._embedder is None:
            await self._load_embedder()

    async def _load_embedder(self) -> None:
        """Load the model, single-flight. If that fails, search by words alone from then on."""
        try:
            self._embedder = await self._loading.run(None, self._load)
        except EmbeddingsUnavailableError as error:
            if not self._broken:
                logger.warning("search uses words alone: the embeddings could not be loaded: %s", error)
            self._broken = True

    async def _index_of(self, tools: _Tools, embedder: Embedder | None) -> Index:
        key = (embedder is not None, tools)
        index = self._indexes.get(key)
        if index is not None:
            self._indexes.move_to_end(key)
            return index
        if self._is_costly(tools):
            index = await self._building.run(key, lambda: self._build_in_thread(tools, embedder))
        else:
            index = self._build(tools, embedder)
        self._cache(key, index)
        return index

    def _is_costly(self, tools: _Tools) -> bool:
        """Whether indexing would block the event loop."""
        if len(tools) > INDEX_INLINE_TOOLS:
            return True
        return sum(not self._prepared_tools.knows(tool) for tool in tools) > INDEX_INLINE_NEW_TOOLS

    def _build_in_thread(self, tools: _Tools, embedder: Embedder | None) -> Index:
        with giving_way():
            return self._build(tools, embedder, in_thread=True)

    def _build(self, tools: _Tools, embedder: Embedder | None, *, in_thread: bool = False) -> Index:
        load_numpy()
        from pointsman.providers.bm25.index import Index, Meaning

        if self._prepared_tools.full:
            self._prepared_tools = self._prepared_tools.emptied()
        known = self._prepared_tools
        prepared = known.prepared_all(tools, embedder, in_thread=in_thread)
        meaning = Meaning(known.vectors(tools, prepared, embedder), embedder) if embedder else None
        return Index(tools, prepared, known.vocabulary, meaning)

    def _save(self) -> None:
        """Write prepared tools to the disk after the search that prepared them, in a thread."""
        if self._prepared_tools.unsaved:
            saving = asyncio.create_task(asyncio.to_thread(self._save_in_thread))
            self._saving.add(saving)
            saving.add_done_callback(self._saving.discard)

    def _save_in_thread(self) -> None:
        with giving_way():
            self._prepared_tools.save()

    def _cache(self, key: _Key, index: Index) -> None:
        self._indexes[key] = index
        while len(self._indexes) > 1 and (len(self._indexes) > KEPT_INDEXES or self._kept_tools() > KEPT_TOOLS):
            self._indexes.popitem(last=False)

    def _kept_tools(self) -> int:
        return sum(len(tools) for _, tools in self._indexes)


def _name(meaning: bool, sentences: bool) -> str:
    """`sentences` count only with `meaning`."""
    if not meaning:
        return WORDS_ALONE
    return WITH_SENTENCES if sentences else WITH_MEANING


def _load_modules() -> None:
    """Run one search over a made-up tool, which also fills the tables that are computed at first use."""
    load_numpy()
    from pointsman.providers.bm25.index import Index
    from pointsman.providers.bm25.ranking import rank

    known, tool = PreparedTools(), ToolDocument("none:none", "none", "none", "None", {})
    index = Index([tool], [known.prepared(tool)], known.vocabulary, None)
    rank(index, SearchRequest(("none",), None, (tool,), 1))


def _is_long(request: SearchRequest) -> bool:
    """Whether searching would block the event loop."""
    if len(request.tools) * len(request.queries) > SEARCH_INLINE_TOOLS:
        return True
    return sum(map(len, request.queries)) + len(request.context or "") > SEARCH_INLINE_CHARS
