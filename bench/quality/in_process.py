"""The provider in process, over every request of a set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from bench.quality.metrics import DEPTH, Figures, area_under_curve, judge, mean
from bench.quality.misspelt import misspelt
from bench.quality.sets import Asked, ToolSet, spread
from pointsman.providers.base import SearchHit, SearchProvider, SearchRequest
from pointsman.providers.semantic.tool_encoder import ToolEncoder
from pointsman.providers.semantic.vector_store import VectorStore

STRANGERS = 250  # requests of each set that are put to each of the other sets


def sentence_encoder() -> ToolEncoder:
    """Keeps the vectors of tools in the system's temporary folder: without them all sets take some minutes."""
    return ToolEncoder(True, VectorStore(Path(gettempdir(), "pointsman-quality-vectors.db")))


@dataclass(frozen=True, slots=True)
class Measured:
    figures: Figures
    p50_ms: float
    p95_ms: float
    right_top: list[float]  # relevance of the best hit, where it is right
    strange_top: list[float]  # of the best hit for requests that were made for other sets


async def measure(provider: SearchProvider, tools: ToolSet, others: Sequence[ToolSet]) -> Measured:
    await _ask(provider, tools, tools.asked[0])  # indexes
    figures, times, right = [], [], []
    for asked in tools.asked:
        began = time.perf_counter()
        hits = await _ask(provider, tools, asked)
        times.append((time.perf_counter() - began) * 1000)
        figures.append(judge(asked, [hit.tool_key for hit in hits]))
        if figures[-1].recall_1:
            right.append(hits[0].relevance)
    strange = [
        hits[0].relevance if (hits := await _ask(provider, tools, asked)) else 0.0
        for other in others
        for asked in spread(other.asked, STRANGERS)
    ]
    times.sort()
    return Measured(mean(figures), times[len(times) // 2], times[len(times) * 95 // 100], right, strange)


async def measure_misspelt(provider: SearchProvider, tools: ToolSet) -> Figures:
    """The same requests with one slip in half of their words."""
    asked = map(misspelt, tools.asked)
    return mean([judge(each, [hit.tool_key for hit in await _ask(provider, tools, each)]) for each in asked])


def separation(measured: Sequence[Measured]) -> float:
    """The separation of right best hits from best hits for foreign requests; every set has the same weight."""
    least = min(len(each.right_top) for each in measured)
    right = [figure for each in measured for figure in each.right_top[:: max(1, len(each.right_top) // least)]]
    return area_under_curve(right, [figure for each in measured for figure in each.strange_top])


async def _ask(provider: SearchProvider, tools: ToolSet, asked: Asked) -> list[SearchHit]:
    return await provider.search(SearchRequest((asked.query,), None, tools.documents, DEPTH))
