"""The local search provider: BM25Plus over the words of names, servers, descriptions and parameters."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pointsman.providers.base import SearchHit, SearchRequest, ToolDocument
from pointsman.providers.documents import WEIGHTS, Field, Prepared, prepare
from pointsman.providers.text import STOP_WORDS, stem, words

if TYPE_CHECKING:  # numpy is heavy: it comes with the first search, not with the gateway
    from pointsman.providers.postings import Floats, Postings

ALL_WEIGHT = 0.2  # of the sum over all queries, beside the best of them
CONTEXT_WEIGHT = 0.3
KEPT_INDEXES = 16
ASIDE_FROM = 1_000  # tools
ASIDE_FROM_NEW = 50
MAX_QUERY_CHARS = 4_000
MAX_EXPLAINED_WORDS = 6


_Tools = tuple[ToolDocument, ...]


class BM25SearchProvider:
    """Ranks by words. Needs nothing from outside and always answers.

    The index of a set of tools is kept by the identity of its documents, and the tokens of a tool for as long as
    its document lives: callers that share their tools share the work.
    """

    name = "bm25"

    def __init__(self) -> None:
        self._indexes: OrderedDict[_Tools, _Index] = OrderedDict()
        self._prepared: WeakKeyDictionary[ToolDocument, Prepared] = WeakKeyDictionary()
        self._building: dict[_Tools, asyncio.Task[_Index]] = {}

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        index = await self._index_of(tuple(request.tools))
        return index.search(request)

    async def _index_of(self, tools: _Tools) -> _Index:
        index = self._indexes.get(tools)
        if index is not None:
            self._indexes.move_to_end(tools)
            return index
        index = await self._build_aside(tools) if self._costly(tools) else self._build(tools)
        self._indexes[tools] = index
        while len(self._indexes) > KEPT_INDEXES:
            self._indexes.popitem(last=False)
        return index

    def _costly(self, tools: _Tools) -> bool:
        """Whether building would hold up the event loop. A new tool costs far more than a known one."""
        return len(tools) > ASIDE_FROM or sum(tool not in self._prepared for tool in tools) > ASIDE_FROM_NEW

    async def _build_aside(self, tools: _Tools) -> _Index:
        """In a thread, once for all who ask at the same time."""
        building = self._building.get(tools)
        if building is None:
            building = self._building[tools] = asyncio.create_task(asyncio.to_thread(self._build, tools))
            building.add_done_callback(lambda _: self._building.pop(tools))
        return await asyncio.shield(building)

    def _build(self, tools: _Tools) -> _Index:
        return _Index(tools, [self._prepare(tool) for tool in tools])

    def _prepare(self, tool: ToolDocument) -> Prepared:
        prepared = self._prepared.get(tool)
        if prepared is None:
            prepared = self._prepared[tool] = prepare(tool)
        return prepared


class _Index:
    """One set of tools, ready to be searched."""

    def __init__(self, tools: Sequence[ToolDocument], prepared: Sequence[Prepared]) -> None:
        from pointsman.providers.postings import Postings

        self._tools = tools
        self._prepared = prepared
        self._postings: Postings = Postings([document.frequencies for document in prepared])

    def search(self, request: SearchRequest) -> list[SearchHit]:
        import numpy as np

        asked = [_query_words(query) for query in request.queries]
        context = _query_words(request.context or "")
        best = np.zeros(len(self._tools))
        total = np.zeros(len(self._tools))
        for query in asked:
            fit = self._fit(query)
            best = np.maximum(best, fit)
            total += fit
        aside = CONTEXT_WEIGHT * self._fit(context)
        scores = best + ALL_WEIGHT * total + aside
        relevance = np.maximum(best, aside)
        found = np.flatnonzero(scores > 0)
        order = found[np.argsort(-scores[found], kind="stable")][: request.max_results]
        said = {token: word for query in [context, *asked] for token, word in query.items()}
        return [
            SearchHit(
                self._tools[row].tool_key,
                round(float(min(relevance[row], 1.0)), 3),
                _explanation(self._prepared[row], said),
            )
            for row in order.tolist()
        ]

    def _fit(self, query: dict[str, str]) -> Floats:
        """How well each tool fits one query, from 0 to 1.

        The best tool gets the share of the query that it covers, so that the best of a bad lot stays low, and the
        others stand to it as their scores do.
        """
        scores = self._postings.matching(query)
        if not scores.any():
            return scores
        top = int(scores.argmax())
        share: float = self._postings.coverage(query, top) / scores[top]
        return scores * share


def _query_words(text: str) -> dict[str, str]:
    """What is asked for, each token once, with the word that it came from."""
    asked: dict[str, str] = {}
    for word in words(text[:MAX_QUERY_CHARS]):
        if word not in STOP_WORDS:
            asked.setdefault(stem(word), word)
    return asked


def _explanation(tool: Prepared, said: dict[str, str]) -> str | None:
    """Which words were found where: `weather in name; city in parameter`."""
    places: dict[Field, list[str]] = {field: [] for field in WEIGHTS}
    for token, word in said.items():
        field = tool.field_of(token)
        if field is not None:
            places[field].append(word)
    found = (f"{', '.join(at[:MAX_EXPLAINED_WORDS])} in {field}" for field, at in places.items() if at)
    return "; ".join(found) or None
