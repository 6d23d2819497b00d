"""Search over what a project has learned: by words and meaning, with a small boost for files that are read a lot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pointsman.archive.context.accesses import Popularity
from pointsman.archive.context.vectors import ContextVectors
from pointsman.archive.embedding.base import EmbeddingError
from pointsman.archive.model.context import ContextItem, ItemFilter
from pointsman.archive.search.fusion import REMOTE_WEIGHT, STATIC_WEIGHT, fuse, normalize
from pointsman.archive.search.query_parser import parse
from pointsman.archive.store.context import ContextStats, ContextStore
from pointsman.providers.text import tokens

CANDIDATES = 100  # of each side
MAX_RANKED = 60  # of both fused: what is further down cannot reach the top
BASE_SHARE = 0.35  # of its fused score an item keeps, however little of the query it covers
MIN_SCORE = 0.1  # the fused score of the last hit counts at least as much
MAX_BOOST = 0.05  # for an item whose file or module is read most
MAX_ACCESSES = 2_000  # files read last
TEXT_ONLY = "Answered by text search: embeddings are still being made in the background."
PARTLY = "Some items have no embedding yet; they were found by text search only."


class NoContextError(Exception):
    """The context has no items."""


class NoProviderError(Exception):
    """No embedding provider is configured, and text search finds nothing."""

    def __init__(self, recorded: bool) -> None:
        super().__init__()
        self.recorded = recorded  # whether the context has any items


class NoVectorsYetError(Exception):
    """No item is embedded yet, and text search finds nothing."""


@dataclass(frozen=True, slots=True)
class ContextHit:
    item: ContextItem
    score: float  # 0..1


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[ContextHit, ...]
    total: int
    notice: str | None = None


class QueryNotEmbeddedError(Exception):
    """The embedding provider failed. `by_text`: what text search found."""

    def __init__(self, reason: str, by_text: Found) -> None:
        super().__init__(reason)
        self.by_text = by_text


class ContextSearch:
    def __init__(
        self,
        store: ContextStore,
        vectors: ContextVectors,
        module_of: Callable[[str], str | None],
        request_embedding: Callable[[], None],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._vectors = vectors
        self._module_of = module_of
        self._request_embedding = request_embedding
        self._wall_clock = wall_clock

    def search(self, query: str, wanted: ItemFilter, limit: int) -> Found:
        """Find the best items that pass `wanted`, best first.

        Raises:
            NoContextError, NoProviderError, NoVectorsYetError, QueryNotEmbeddedError, StoreError
        """
        embeddings = self._vectors.embeddings
        if not self._store.stats("").items:
            raise NoProviderError(recorded=False) if embeddings is None else NoContextError
        by_words = dict(self._store.find(parse(query), wanted, CANDIDATES))
        if embeddings is None:
            if not by_words:
                raise NoProviderError(recorded=True)
            return self._rank(query, by_words, {}, limit, None)
        try:
            vector = self._vectors.embed_query(embeddings, query)
            space = str(embeddings.space())
        except EmbeddingError as error:
            raise QueryNotEmbeddedError(str(error), self._rank(query, by_words, {}, limit, None)) from error
        figures = self._store.stats(space)
        if figures.embedded < figures.items:
            self._request_embedding()
        if not figures.embedded and not by_words:
            raise NoVectorsYetError
        near = self._vectors.nearest(space, vector, wanted, CANDIDATES)
        return self._rank(query, by_words, near, limit, _notice(figures))

    def _rank(
        self, query: str, by_words: Mapping[int, float], near: Mapping[int, float], limit: int, notice: str | None
    ) -> Found:
        remote = self._vectors.embeddings is not None and self._vectors.embeddings.remote
        weight = REMOTE_WEIGHT if remote else STATIC_WEIGHT
        fused = fuse(by_words, near, weight) if by_words and near else normalize(by_words or near)
        items = self._store.items(list(fused)[:MAX_RANKED])
        popularity = Popularity(self._store.accesses(MAX_ACCESSES), self._wall_clock(), self._module_of)
        asked = frozenset(tokens(query))
        ranked = sorted(
            (-_score(fused[row], _coverage(asked, item), near.get(row, 0.0), popularity.of(item)), item.id, item)
            for row, item in items.items()
        )
        hits = tuple(ContextHit(item, round(min(1.0, -negated), 4)) for negated, _, item in ranked[:limit])
        return Found(hits, len(fused), notice)


def _notice(figures: ContextStats) -> str | None:
    if not figures.embedded:
        return TEXT_ONLY
    return PARTLY if figures.embedded < figures.items else None


def _coverage(asked: frozenset[str], item: ContextItem) -> float:
    """The share of the query's words that the item has."""
    if not asked:
        return 0.0
    return len(asked & set(tokens(f"{item.title} {item.module or ''} {item.content}"))) / len(asked)


def _score(fused: float, coverage: float, cosine: float, popularity: float) -> float:
    """The fused score, lowered for an item that covers little of the query."""
    evidence = BASE_SHARE + (1 - BASE_SHARE) * max(coverage, cosine)
    return max(MIN_SCORE, fused) * evidence * (1 + MAX_BOOST * popularity)
