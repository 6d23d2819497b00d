"""One search from its headers to its answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx2

from pointsman.catalog.rights import RightsIndex
from pointsman.config.model import GatewayConfig, SearchApi, SearchApiLlm
from pointsman.core.model import Json
from pointsman.providers.base import SearchHit, SearchHits, SearchProvider, SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.llm.chat import Chat, Endpoint
from pointsman.providers.llm.provider import LlmSearchProvider, Selected
from pointsman.router.search_api.document_cache import DocumentCache
from pointsman.router.search_api.fair_limiter import FairLimiter
from pointsman.router.search_api.messages import API_VERSION
from pointsman.router.search_api.metrics import ServiceMetrics
from pointsman.router.search_api.reading import Read, read
from pointsman.router.search_api.refusals import too_slow


@dataclass(frozen=True, slots=True)
class Found:
    request: SearchRequest
    hits: SearchHits
    provider: str


class SearchService:
    """Has the configuration that holds now, and the provider that follows from it."""

    def __init__(self, config: GatewayConfig, http: httpx2.AsyncClient) -> None:
        self.rights = RightsIndex(config)
        self._http = http
        self._local = BM25SearchProvider(lambda: self.settings.provider != "bm25")
        self._llm: tuple[SearchApiLlm, LlmSearchProvider] | None = None
        self._shelf = DocumentCache()
        self.places = FairLimiter(self.settings.limits.searches, self.settings.limits.wait_s)
        self.metrics = ServiceMetrics(lambda: self.places.taken, lambda: self._shelf.tools)
        self._under_way: set[asyncio.Task[Found]] = set()

    @property
    def settings(self) -> SearchApi:
        return self.rights.config.search_api or SearchApi()

    def configure(self, config: GatewayConfig) -> None:
        self.rights = RightsIndex(config)
        self.places.configure(self.settings.limits.searches, self.settings.limits.wait_s)

    async def warm_up(self) -> None:
        """Load what the first search would wait for."""
        await self._local.prepare()

    async def search(self, token_id: str, body: bytes, *, gzipped: bool) -> Found:
        """Whoever asks has taken a place for `token_id`; it is given back when the work is over, however long
        that takes.

        Raises:
            ApiError: 400, 413, or 503 where it takes too long.
        """
        task = asyncio.create_task(self._search(body, gzipped=gzipped))
        self._under_way.add(task)
        task.add_done_callback(lambda done: self._over(done, token_id))
        limit_s = self.settings.limits.search_s
        done, _ = await asyncio.wait([task], timeout=limit_s)
        if not done:
            raise too_slow(limit_s)
        return task.result()

    def _over(self, task: asyncio.Task[Found], token_id: str) -> None:
        self._under_way.discard(task)
        self.places.give_back(token_id)
        if not task.cancelled():
            task.exception()  # asked for, so that it is not reported as lost where nobody waits any more

    async def _search(self, body: bytes, *, gzipped: bool) -> Found:
        began = time.perf_counter()
        got: Read = await asyncio.to_thread(read, body, gzipped=gzipped, limits=self.settings.limits, shelf=self._shelf)
        provider = self._provider()
        hits = await provider.search(got.request)
        ranked = hits if isinstance(hits, SearchHits) else SearchHits(hits, ())
        name = ranked.provider if isinstance(ranked, Selected) else provider.name
        seconds = time.perf_counter() - began
        self.metrics.searched(ranked, name, len(got.request.tools), got.known_list, seconds)
        return Found(got.request, ranked, name)

    def _provider(self) -> SearchProvider:
        """A language model is asked anew who it is only when the configuration names another."""
        llm = self.settings.llm
        if self.settings.provider != "llm" or llm is None:
            return self._local
        if self._llm is None or self._llm[0] != llm:
            key = llm.key.get_secret_value() if llm.key is not None else None
            chat = Chat(self._http, Endpoint(llm.base_url, llm.model, key, llm.timeout_s))
            self._llm = llm, LlmSearchProvider(self._local, chat)
        return self._llm[1]


def answer(found: Found) -> Json:
    by_key = {tool.tool_key: tool for tool in found.request.tools}
    hits = sorted(found.hits, key=lambda hit: -hit.relevance)  # stable: equals keep the provider's order
    shown: Json = {
        "apiVersion": API_VERSION,
        "results": [_result(hit, by_key[hit.tool_key]) for hit in hits],
        "provider": found.provider,
    }
    if len(found.hits.best_by_query) == len(found.request.queries):
        shown["bestByQuery"] = list(found.hits.best_by_query)
    return shown


def _result(hit: SearchHit, tool: ToolDocument) -> Json:
    """What is empty is left out."""
    result: Json = {
        "toolKey": tool.tool_key,
        "toolName": tool.tool_name,
        "serverName": tool.server_name,
        "description": tool.description,
        "relevance": round(hit.relevance, 3),
        "explanation": hit.explanation,
        "intents": list(hit.intents),
    }
    return {key: value for key, value in result.items() if value or key in ("serverName", "relevance")}
