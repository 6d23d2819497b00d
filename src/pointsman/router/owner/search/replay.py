"""Ranks requests again, by the search in use and by others: where do the expected tools come? Records nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pointsman.catalog.rights import OWNER_ID
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import GatewayConfig, Strategy
from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Caller, Json
from pointsman.providers.base import SearchHit, SearchProvider, SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import WITH_MEANING, WITH_SENTENCES, WORDS_ALONE, BM25SearchProvider
from pointsman.providers.semantic.encoder import EncoderUnavailableError
from pointsman.providers.semantic.tool_encoder import ToolEncoder
from pointsman.providers.semantic.vector_store import FILE as VECTORS
from pointsman.providers.semantic.vector_store import VectorStore
from pointsman.router.gateway.discover import read_discovery
from pointsman.router.gateway.meta_tools import MAX_RESULTS
from pointsman.router.owner.channel import OwnerError

MAX_CASES = 100  # in one request
NOW = "now"  # the search in use
MAX_NEAREST = 20  # wrong keys for which one is looked up
LEAST_ALIKE = 0.6  # of 1: how alike the name of a tool is to a wrong one for which it may stand

# The searches beside the one in use, by the names that audit rows have for them.
PROVIDERS = (WORDS_ALONE, WITH_MEANING, WITH_SENTENCES, "cloud")


class _Case(Struct, frozen=True):
    caller: Caller
    request: SearchRequest
    expected: frozenset[str]


async def replay(
    catalog: ToolCatalogService, config: GatewayConfig, state_dir: Path, cases: Sequence[Json], names: Sequence[str]
) -> Json:
    """For each case the rank of the best of its expected tools by each search, from 1; None: not among the first 100.

    A case whose project no longer exists has no ranks at all. `unknown`: expected tools that no server has; `nearest`:
    for these, the tool of the same server that is spelt most alike.
    """
    if len(cases) > MAX_CASES:
        raise OwnerError("invalid_request", f"At most {MAX_CASES} cases are ranked at once.")
    providers: dict[str, SearchProvider | Strategy] = {name: provider_of(name, config, state_dir) for name in names}
    read = [_read(case, catalog, config) for case in cases]
    ranked = []
    try:
        for case in read:
            ranked.append(None if case is None else await _rank(catalog, case, providers))
            await asyncio.sleep(0)  # a search takes milliseconds, and calls go on meanwhile
    except EncoderUnavailableError as error:
        raise OwnerError("encoder_unavailable", str(error)) from None
    expected = {key for case in read if case is not None for key in case.expected}
    unknown = sorted(key for key in expected if _is_unknown(catalog, config, key))
    nearest = {key: near for key in unknown[:MAX_NEAREST] if (near := _nearest(catalog, key)) is not None}
    return {"cases": ranked, "unknown": unknown, "nearest": nearest}


def _is_unknown(catalog: ToolCatalogService, config: GatewayConfig, tool_key: str) -> bool:
    """Whether no server has such a tool; False if the tools of its server are not known."""
    server_id, _, name = tool_key.partition(":")
    if server_id not in config.servers:
        return True
    listed = catalog.last_list(server_id)
    held = (one.name for one in catalog.admission.held(server_id) if one.kind == "tool")
    return listed is not None and name not in listed.items and name not in held


def _nearest(catalog: ToolCatalogService, tool_key: str) -> str | None:
    from rapidfuzz.distance import OSA  # only for a wrong key
    from rapidfuzz.process import extractOne

    server_id, _, name = tool_key.partition(":")
    listed = catalog.last_list(server_id)
    names = list(listed.items) if listed is not None else []
    found = extractOne(name, names, scorer=OSA.normalized_similarity, score_cutoff=LEAST_ALIKE)
    return f"{server_id}:{found[0]}" if found else None


def provider_of(name: str, config: GatewayConfig, state_dir: Path) -> SearchProvider | Strategy:
    """One of `PROVIDERS` by its name. Raises OwnerError."""
    if name in (WORDS_ALONE, WITH_MEANING):
        return BM25SearchProvider(embeddings=name == WITH_MEANING)
    if name == WITH_SENTENCES:
        return _WithSentences(VectorStore(state_dir / VECTORS))
    if name != "cloud":
        raise OwnerError("invalid_request", f"There is no search `{name[:40]}`; known are {', '.join(PROVIDERS)}.")
    if config.cloud_search is None:
        raise OwnerError("invalid_request", "No search service is configured: the key `cloud_search` is missing.")
    return "cloud"


class _WithSentences:
    """Local search with the sentence encoder, which waits for the vectors of all tools."""

    name = WITH_SENTENCES

    def __init__(self, store: VectorStore) -> None:
        self._encoder = ToolEncoder(True, store)
        self._provider = BM25SearchProvider(embeddings=True, encoder=self._encoder)
        self._encoded: set[tuple[ToolDocument, ...]] = set()

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        tools = tuple(request.tools)
        if tools and tools not in self._encoded:
            await asyncio.to_thread(self._encoder.encode_now, tools)
            self._encoded.add(tools)
        return await self._provider.search(request)


def _read(case: Json, catalog: ToolCatalogService, config: GatewayConfig) -> _Case | None:
    expected, project, token = case.get("expected"), case.get("project"), case.get("token")
    if not isinstance(expected, list) or not all(isinstance(key, str) for key in expected):
        raise OwnerError("invalid_request", "`expected` must be a list of tool keys.")
    if project is not None and project not in config.projects:
        return None
    try:
        asked = read_discovery(
            {"query": case.get("queries"), "context": case.get("context"), "maxResults": MAX_RESULTS}
        )
    except InvalidArgumentsError as error:
        raise OwnerError("invalid_request", str(error)) from None
    caller = Caller(token, project) if isinstance(token, str) else Caller(OWNER_ID, project)
    if not catalog.still_valid(caller):  # of a token that is gone, the owner's tools stand in
        caller = Caller(OWNER_ID, project)
    request = SearchRequest(asked.queries, asked.context, (), MAX_RESULTS, explain=False)
    return _Case(caller, request, frozenset(expected))


async def _rank(catalog: ToolCatalogService, case: _Case, providers: Mapping[str, SearchProvider | Strategy]) -> Json:
    by_name: Json = {}
    for name, provider in {NOW: None, **providers}.items():
        ranking, results = await catalog.trial(case.caller, case.request, provider)
        keys = (result.tool.document.tool_key for result in results)
        rank = next((place for place, key in enumerate(keys, 1) if key in case.expected), None)
        by_name[name] = {"provider": ranking.provider, "rank": rank}
    return by_name
