"""What the catalog answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.catalog import notices
from pointsman.catalog.listing import KnownTool
from pointsman.providers.base import SearchHit, SearchHits


@dataclass(frozen=True, slots=True)
class Available:
    """The Available Tool List of one caller."""

    tools: tuple[KnownTool, ...]
    notices: tuple[str, ...]  # what was left out


@dataclass(frozen=True, slots=True)
class Found:
    """One result of a search."""

    tool: KnownTool
    relevance: float
    explanation: str | None
    # Which of several queries it serves; empty: none of them, or there was one, or the provider did not say.
    intents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    results: tuple[Found, ...]
    notice: str | None
    provider: str | None  # as in the audit row; None: nothing was searched
    fallback: bool
    code: str | None = None  # as in the audit row: why the local provider had to answer


def own_results(
    tools: Iterable[KnownTool], hits: Iterable[SearchHit], max_results: int, queries: int = 1
) -> tuple[Found, ...]:
    """Only what we offered, each once, with figures in bounds: a provider may be a stranger's."""
    by_key = {tool.document.tool_key: tool for tool in tools}
    results: list[Found] = []
    for hit in hits:
        tool = by_key.pop(hit.tool_key, None)
        if tool is None:
            continue
        relevance = min(max(hit.relevance, 0.0), 1.0) if hit.relevance == hit.relevance else 0.0  # NaN
        intents = tuple(sorted({index for index in hit.intents if 0 <= index < queries})) if queries > 1 else ()
        results.append(Found(tool, relevance, hit.explanation, intents))
        if len(results) == max_results:
            break
    return tuple(results)


def fitting_notice(results: Sequence[Found], hits: Sequence[SearchHit], queries: int) -> str | None:
    """What to say where nothing fits, or nothing that fits one of several queries, or where that had no room."""
    fitting = [found for found in results if found.relevance >= notices.DOUBTFUL]
    if not fitting:
        return notices.NOTHING_FITS
    if queries == 1:
        return None
    shown = {index for found in fitting for index in found.intents}
    if not shown:  # a provider need not tell them apart
        return None
    best = hits.best_by_query if isinstance(hits, SearchHits) and len(hits.best_by_query) == queries else None
    fits = {index for index in range(queries) if best[index] >= notices.DOUBTFUL} if best else shown
    unfit = [index for index in range(queries) if index not in fits]
    hidden = sorted(fits - shown)
    told = ([notices.not_served(unfit)] if unfit else []) + ([notices.no_room(hidden)] if hidden else [])
    return " ".join(told) or None
