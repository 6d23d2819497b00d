"""What the catalog answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.catalog import notices
from pointsman.catalog.listing import KnownTool
from pointsman.providers.base import SearchHit


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
    intents: tuple[
        int, ...
    ] = ()  # which of several queries it serves; empty: there was one, or the provider did not say


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    results: tuple[Found, ...]
    notice: str | None
    provider: str | None  # as in the audit row; None: nothing was searched
    fallback: bool


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


def fitting_notice(results: Sequence[Found], queries: int) -> str | None:
    """What to say where nothing fits, or nothing that fits one of several queries."""
    fitting = [found for found in results if found.relevance >= notices.DOUBTFUL]
    if not fitting:
        return notices.NOTHING_FITS
    if queries == 1 or not all(found.intents for found in results):  # a provider need not tell them apart
        return None
    served = {index for found in fitting for index in found.intents}
    missing = [index for index in range(queries) if index not in served]
    return notices.not_served(missing) if missing else None
