"""The interface of search providers: the request, the hits, and the error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct


class ToolDocument(Struct, frozen=True, eq=False, weakref=True):
    """One tool as search sees it. Compared by identity: the catalog keeps one object for each definition."""

    tool_key: str
    tool_name: str
    server_name: str
    description: str
    input_schema: Mapping[str, Any]
    title: str = ""
    examples: tuple[str, ...] = ()  # requests that it is for; they are compared by meaning alone
    configured: bool = True  # False: it refuses every call until the operator has set what it needs


class SearchRequest(Struct, frozen=True):
    queries: tuple[str, ...]
    context: str | None
    tools: Sequence[ToolDocument]
    max_results: int
    project_id: str | None = None  # of the caller, for a service that separates projects
    request_id: str = ""  # as in the audit row
    explain: bool = True  # whether hits need an explanation by the words that matched
    least_each: int = 1  # how many tools each of several queries gets, as far as there is room


class SearchHit(Struct, frozen=True):
    tool_key: str
    relevance: float  # 0..1
    explanation: str | None = None
    intents: tuple[int, ...] = ()  # the indexes of the queries that it serves
    fits: tuple[float, ...] = ()  # its relevance for each of them; empty: not known
    semantic_share: float | None = None  # of its score; None: not explained, or ranked by words alone


class SearchHits(list[SearchHit]):
    """A ranking that also has, for each query, the relevance of its best tool, listed here or not."""

    def __init__(self, hits: Iterable[SearchHit], best_by_query: Sequence[float], ranked_by: str | None = None) -> None:
        super().__init__(hits)
        self.best_by_query = tuple(best_by_query)
        self.foreign = False  # True: nothing fits, and most words are neither English nor the tools'
        self.ranked_by = ranked_by  # as `SearchProvider.name`, if a provider ranks in more than one way


class SearchUnavailableError(Exception):
    """This provider gave no answer; the caller tries the next one.

    The text continues "the search service" and is shown to models; `code` is recorded in the audit row.
    """

    def __init__(self, reason: str, code: str = "search_unavailable") -> None:
        super().__init__(reason)
        self.code = code


class SearchProvider(Protocol):
    """Ranks tools."""

    @property
    def name(self) -> str:
        """As in the audit row: `bm25`, `bm25+static`, `bm25+static+minilm` or `cloud`."""
        ...

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        """Rank `request.tools`, best first, at most `max_results` of them.

        A plain list is enough; with `SearchHits` the catalog can say which of several queries no tool fits.

        Raises:
            SearchUnavailableError: no answer in time; the caller tries the next provider.
        """
        ...
