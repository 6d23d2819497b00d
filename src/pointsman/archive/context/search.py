"""Search over what a project has learned: filtered first, then by words and meaning, then a little by what is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pointsman.archive.context.popularity import Popularity
from pointsman.archive.context.vectors import ContextVectors
from pointsman.archive.embedding.base import EmbeddingError
from pointsman.archive.model.context import ContextItem, ItemFilter
from pointsman.archive.search.fusion import REMOTE_WEIGHT, STATIC_WEIGHT, alone, fuse
from pointsman.archive.search.query_parsing import parse
from pointsman.archive.store.context import ContextStats, ContextStore
from pointsman.providers.text import tokens

CANDIDATES = 100  # of each side
LOOKED_AT = 60  # of both together: what is further down cannot come to the top
SURE = 0.35  # of its place in the ranking an item keeps, however little of the request it covers
LEAST = 0.1  # the last of those that were found keeps so much
READ_LIFT = 0.05  # at most, for an item whose file or module is read a lot
MOST_ACCESSES = 2_000  # of the files read last
TEXT_ONLY = "Answered by text search: embeddings are still being made in the background."
PARTLY = "Some items have no embedding yet; they were found by text search only."


class NoContextError(Exception):
    """Nothing has been recorded at all."""


class NoProviderError(Exception):
    """No provider of embeddings is configured, and text search finds nothing."""

    def __init__(self, recorded: bool) -> None:
        super().__init__()
        self.recorded = recorded  # whether there is anything to search


class NoVectorsYetError(Exception):
    """There are items, but none of them is embedded yet, and text search finds nothing."""


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
    """The provider of embeddings did not answer. What text search found comes along."""

    def __init__(self, reason: str, by_text: Found) -> None:
        super().__init__(reason)
        self.by_text = by_text


class ContextSearch:
    def __init__(
        self,
        store: ContextStore,
        vectors: ContextVectors,
        module_of: Callable[[str], str | None],
        embeddings_wanted: Callable[[], None],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._vectors = vectors
        self._module_of = module_of
        self._embeddings_wanted = embeddings_wanted
        self._wall_clock = wall_clock

    def search(self, query: str, wanted: ItemFilter, limit: int) -> Found:
        """The best that fit `wanted`, best first.

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
            return self._found(query, by_words, {}, limit, None)
        try:
            vector = self._vectors.of_query(embeddings, query)
            space = str(embeddings.space())
        except EmbeddingError as error:
            raise QueryNotEmbeddedError(str(error), self._found(query, by_words, {}, limit, None)) from error
        figures = self._store.stats(space)
        if figures.embedded < figures.items:
            self._embeddings_wanted()
        if not figures.embedded and not by_words:
            raise NoVectorsYetError
        near = self._vectors.nearest(space, vector, wanted, CANDIDATES)
        return self._found(query, by_words, near, limit, _notice(figures))

    def _found(
        self, query: str, by_words: Mapping[int, float], near: Mapping[int, float], limit: int, notice: str | None
    ) -> Found:
        remote = self._vectors.embeddings is not None and self._vectors.embeddings.remote
        weight = REMOTE_WEIGHT if remote else STATIC_WEIGHT
        fused = fuse(by_words, near, weight) if by_words and near else alone(by_words or near)
        items = self._store.items(list(fused)[:LOOKED_AT])
        popularity = Popularity(self._store.accesses(MOST_ACCESSES), self._wall_clock(), self._module_of)
        asked = frozenset(tokens(query))
        ranked = sorted(
            (-_fit(fused[row], _covered(asked, item), near.get(row, 0.0), popularity.of(item)), item.id, item)
            for row, item in items.items()
        )
        hits = tuple(ContextHit(item, round(min(1.0, -fit), 4)) for fit, _, item in ranked[:limit])
        return Found(hits, len(fused), notice)


def _notice(figures: ContextStats) -> str | None:
    if not figures.embedded:
        return TEXT_ONLY
    return PARTLY if figures.embedded < figures.items else None


def _covered(asked: frozenset[str], item: ContextItem) -> float:
    """How much of what was asked the item speaks of."""
    if not asked:
        return 0.0
    return len(asked & set(tokens(f"{item.title} {item.module or ''} {item.content}"))) / len(asked)


def _fit(place: float, covered: float, cosine: float, popularity: float) -> float:
    """Where it stands among the others, weakened where it says little about the request itself."""
    return max(LEAST, place) * (SURE + (1 - SURE) * max(covered, cosine)) * (1 + READ_LIFT * popularity)
