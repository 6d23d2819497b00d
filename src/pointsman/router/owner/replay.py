"""Ranks requests again, by the search in use and by others: where do the expected tools come? Records nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.catalog.rights import OWNER_ID
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import GatewayConfig, Strategy
from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Caller, Json
from pointsman.providers.base import SearchProvider, SearchRequest
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.router.gateway.discover import read_discovery
from pointsman.router.gateway.meta_tools import MAX_RESULTS
from pointsman.router.owner.channel import OwnerError

MAX_CASES = 100  # in one request
NOW = "now"  # the search in use

# The searches beside the one in use, by the names that audit rows have for them.
_LOCAL: Mapping[str, Callable[[], SearchProvider]] = {
    "bm25": lambda: BM25SearchProvider(embeddings=False),
    "bm25+static": lambda: BM25SearchProvider(embeddings=True),
}
PROVIDERS = (*_LOCAL, "cloud")


@dataclass(frozen=True, slots=True)
class _Case:
    caller: Caller
    request: SearchRequest
    expected: frozenset[str]


async def replay(
    catalog: ToolCatalogService, config: GatewayConfig, cases: Sequence[Json], names: Sequence[str]
) -> Json:
    """For each case the rank of the best of its expected tools by each search, from 1; None: not among the first 100.

    A case whose project no longer exists has no ranks at all.
    """
    if len(cases) > MAX_CASES:
        raise OwnerError("invalid_request", f"At most {MAX_CASES} cases are ranked at once.")
    providers = {name: _provider(name, config) for name in names}
    read = [_read(case, catalog, config) for case in cases]
    ranked = []
    for case in read:
        ranked.append(None if case is None else await _rank(catalog, case, providers))
        await asyncio.sleep(0)  # a search takes milliseconds, and calls go on meanwhile
    return {"cases": ranked}


def _provider(name: str, config: GatewayConfig) -> SearchProvider | Strategy:
    if name in _LOCAL:
        return _LOCAL[name]()
    if name != "cloud":
        raise OwnerError("invalid_request", f"There is no search `{name[:40]}`; known are {', '.join(PROVIDERS)}.")
    if config.cloud_search is None:
        raise OwnerError("invalid_request", "No search service is configured: the key `cloud_search` is missing.")
    return "cloud"


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
        used, keys = await catalog.replay(case.caller, case.request, provider)
        rank = next((place for place, key in enumerate(keys, 1) if key in case.expected), None)
        by_name[name] = {"provider": used, "rank": rank}
    return by_name
