"""What the catalog answers with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.catalog.listing import KnownTool
from pointsman.catalog.model import Json
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

    def as_json(self) -> Json:
        """As `tool_discovery` shows it."""
        document, tool = self.tool.document, self.tool.tool
        shown: Json = {
            "toolKey": document.tool_key,
            "toolName": document.tool_name,
            "serverName": document.server_name,
        }
        if document.description:
            shown["description"] = document.description
        shown["relevance"] = self.relevance
        if self.explanation:
            shown["explanation"] = self.explanation
        for key in ("inputSchema", "outputSchema", "annotations"):
            if isinstance(tool.get(key), dict):
                shown[key] = tool[key]
        return shown


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    results: tuple[Found, ...]
    notice: str | None
    provider: str | None  # as in the audit row; None: nothing was searched
    fallback: bool


def own_results(tools: Iterable[KnownTool], hits: Iterable[SearchHit], max_results: int) -> tuple[Found, ...]:
    """Only what we offered, each once, with figures in bounds: a provider may be a stranger's."""
    by_key = {tool.document.tool_key: tool for tool in tools}
    results: list[Found] = []
    for hit in hits:
        tool = by_key.pop(hit.tool_key, None)
        if tool is None:
            continue
        relevance = min(max(hit.relevance, 0.0), 1.0) if hit.relevance == hit.relevance else 0.0  # NaN
        results.append(Found(tool, relevance, hit.explanation))
        if len(results) == max_results:
            break
    return tuple(results)
