"""Runs a search, from the body of its request to the answer."""

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
from pointsman.router.search_api.errors import too_slow
from pointsman.router.search_api.fair_limiter import FairLimiter
from pointsman.router.search_api.messages import API_VERSION
from pointsman.router.search_api.metrics import ServiceMetrics
from pointsman.router.search_api.request import parse_request


@dataclass(frozen=True, slots=True)
class Ranking:
    request: SearchRequest
    hits: SearchHits
    provider: str


class SearchService:
    """The current configuration, and the search provider that it selects."""

    def __init__(self, config: GatewayConfig, http: httpx2.AsyncClient) -> None:
        self.rights = RightsIndex(config)
        self._http = http
        self._local = BM25SearchProvider(lambda: self.settings.provider != "bm25")
        self._llm: tuple[SearchApiLlm, LlmSearchProvider] | None = None
        self._cache = DocumentCache()
        self.slots = FairLimiter(self.settings.limits.searches, self.settings.limits.wait_s)
        self.metrics = ServiceMetrics(lambda: self.slots.taken, lambda: self._cache.tools)
        self._under_way: set[asyncio.Task[Ranking]] = set()

    @property
    def settings(self) -> SearchApi:
        return self.rights.config.search_api or SearchApi()

    def configure(self, config: GatewayConfig) -> None:
        self.rights = RightsIndex(config)
        self.slots.configure(self.settings.limits.searches, self.settings.limits.wait_s)

    async def warm_up(self) -> None:
        """Load what the first search would otherwise wait for."""
        await self._local.prepare()

    async def search(self, token_id: str, body: bytes, *, gzipped: bool) -> Ranking:
        """Search, and give back the slot that the caller took for `token_id` when the work ends, even after a timeout.

        Raises:
            ApiError: 400, 413, or 503 if it takes too long.
        """
        task = asyncio.create_task(self._search(body, gzipped=gzipped))
        self._under_way.add(task)
        task.add_done_callback(lambda done: self._ended(done, token_id))
        limit_s = self.settings.limits.search_s
        done, _ = await asyncio.wait([task], timeout=limit_s)
        if not done:
            raise too_slow(limit_s)
        return task.result()

    def _ended(self, task: asyncio.Task[Ranking], token_id: str) -> None:
        self._under_way.discard(task)
        self.slots.give_back(token_id)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it after a timeout

    async def _search(self, body: bytes, *, gzipped: bool) -> Ranking:
        began = time.perf_counter()
        parsed = await asyncio.to_thread(
            parse_request, body, gzipped=gzipped, limits=self.settings.limits, cache=self._cache
        )
        provider = self._provider()
        hits = await provider.search(parsed.request)
        ranked = hits if isinstance(hits, SearchHits) else SearchHits(hits, ())
        name = ranked.provider if isinstance(ranked, Selected) else provider.name
        seconds = time.perf_counter() - began
        self.metrics.searched(ranked, name, len(parsed.request.tools), parsed.known_list, seconds)
        return Ranking(parsed.request, ranked, name)

    def _provider(self) -> SearchProvider:
        """Return the configured provider; that of a language model is kept until its settings change."""
        llm = self.settings.llm
        if self.settings.provider != "llm" or llm is None:
            return self._local
        if self._llm is None or self._llm[0] != llm:
            key = llm.key.get_secret_value() if llm.key is not None else None
            chat = Chat(self._http, Endpoint(llm.base_url, llm.model, key, llm.timeout_s))
            self._llm = llm, LlmSearchProvider(self._local, chat)
        return self._llm[1]


def answer(ranking: Ranking) -> Json:
    by_key = {tool.tool_key: tool for tool in ranking.request.tools}
    hits = sorted(ranking.hits, key=lambda hit: -hit.relevance)  # stable: ties keep the provider's order
    shown: Json = {
        "apiVersion": API_VERSION,
        "results": [_result(hit, by_key[hit.tool_key]) for hit in hits],
        "provider": ranking.provider,
    }
    if len(ranking.hits.best_by_query) == len(ranking.request.queries):
        shown["bestByQuery"] = list(ranking.hits.best_by_query)
    return shown


def _result(hit: SearchHit, tool: ToolDocument) -> Json:
    """Omit empty fields."""
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
