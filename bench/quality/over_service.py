"""The search service over HTTP, compared hit by hit with the same provider in process."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from bench.quality.metrics import DEPTH, Figures, judge, mean
from bench.quality.sets import ToolSet, spread
from bench.service import ask, measured_service, tool_infos
from pointsman.providers.base import SearchHit, SearchRequest
from pointsman.providers.bm25.provider import BM25SearchProvider

SAMPLE = 200


@dataclass(frozen=True, slots=True)
class Compared:
    figures: Figures  # of what came over HTTP
    asked: int
    equal: int
    example: str  # of a request with a different answer
    p50_ms: float
    p95_ms: float


@asynccontextmanager
async def service() -> AsyncIterator[httpx2.AsyncClient]:
    async with measured_service() as (_, http):
        yield http


async def compare(http: httpx2.AsyncClient, provider: BM25SearchProvider, tools: ToolSet) -> Compared:
    infos = json.dumps(tool_infos(tools.documents))
    sample = spread(tools.asked, SAMPLE)
    figures, times, different = [], [], []
    for asked in sample:
        began = time.perf_counter()
        answer = await ask(http, [asked.query], infos, DEPTH, True)
        times.append((time.perf_counter() - began) * 1000)
        figures.append(judge(asked, [result["toolKey"] for result in answer["results"]]))
        own = await provider.search(SearchRequest((asked.query,), None, tools.documents, DEPTH))
        same = _as_results(own) == _without_names(answer["results"])
        if not same or answer["bestByQuery"] != list(own.best_by_query):
            different.append(asked.query)
    times.sort()
    return Compared(
        mean(figures),
        len(sample),
        len(sample) - len(different),
        different[0] if different else "",
        times[len(times) // 2],
        times[len(times) * 95 // 100],
    )


def _as_results(hits: Sequence[SearchHit]) -> list[tuple[Any, ...]]:
    return [(hit.tool_key, hit.relevance, hit.explanation, list(hit.intents)) for hit in hits]


def _without_names(results: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("toolKey", "relevance", "explanation")
    return [(*(result[key] for key in keys), result.get("intents", [])) for result in results]
