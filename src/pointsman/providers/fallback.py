"""Asks one provider, and the local one as well if that takes long or gives no answer."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from pointsman.providers.base import SearchHit, SearchHits, SearchProvider, SearchRequest, SearchUnavailableError

HEDGE_S = 0.2  # how long another provider may take before the local one starts searching, too


class Ranking(Struct, frozen=True):
    provider: str  # the name of the ranking that was really used
    hits: list[SearchHit]
    unavailable: SearchUnavailableError | None = None  # why the local provider had to answer


async def rank_with(provider: SearchProvider, local: SearchProvider, request: SearchRequest) -> Ranking:
    """The provider's hits; if it does not answer, the local provider's and the reason."""
    if provider is local:
        hits = await local.search(request)
        return Ranking(_ranked_by(local, hits), hits)
    asked = asyncio.ensure_future(provider.search(request))
    fallback: asyncio.Future[list[SearchHit]] | None = None
    try:
        answered, _ = await asyncio.wait({asked}, timeout=HEDGE_S)
        if not answered:
            fallback = asyncio.ensure_future(local.search(request))
        hits = await asked
    except SearchUnavailableError as error:
        hits = await (fallback or local.search(request))
        return Ranking(_ranked_by(local, hits), hits, error)
    finally:
        await _cancel_searches(asked, fallback)
    return Ranking(_ranked_by(provider, hits), hits)


def _ranked_by(provider: SearchProvider, hits: list[SearchHit]) -> str:
    return (hits.ranked_by if isinstance(hits, SearchHits) else None) or provider.name


async def _cancel_searches(*searches: asyncio.Future[list[SearchHit]] | None) -> None:
    """Cancel searches whose result is no longer needed."""
    under_way = [search for search in searches if search is not None]
    for search in under_way:
        search.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
