"""One search: by words, by meaning where there are vectors, and both as one ranking."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pointsman.archive.embedding.base import EmbeddingError, Embeddings
from pointsman.archive.embedding.passage_vectors import MixedSpacesError
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.search.evidence import Asked, scaled
from pointsman.archive.search.fusion import DEPTH, REMOTE_WEIGHT, STATIC_WEIGHT, alone, fuse
from pointsman.archive.search.vectors import VectorIndex, Wanted
from pointsman.archive.store.base import Passage, Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUERY_DEADLINE_S = 10.0
REST_S = 30.0  # a provider that did not answer is not waited for at every search
UNKNOWN_DISTANCE = 1.0  # of what has no vector: neither near nor opposed
MOST_WORDS_OF_A_TEXT = 24
SPARE = 10  # looked up besides those that are wanted: some may have gone meanwhile

_WORD = re.compile(r"[^\W_]{2,40}")


@dataclass(frozen=True, slots=True)
class Found:
    passage: Passage
    relevance: float  # 0 to 1
    distance: float  # of the cosine, 0 to 2


@dataclass(frozen=True, slots=True)
class Answer:
    found: tuple[Found, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """What related passages are sought for: a document, or a text that is said to come from it."""

    collection: str
    document: str
    text: str | None = None


class _NoVectorsError(Exception):
    """Search by meaning is not to be had; the message says why, or is empty where nobody expected it."""


class Searcher:
    """Thread-safe."""

    def __init__(
        self, storage: Storage, embeddings: Embeddings | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._embeddings = embeddings
        self._clock = clock
        self._failure: tuple[float, str] | None = None  # until when to rest, and why
        self._index = VectorIndex(storage.vectors)

    @property
    def remote(self) -> bool:
        return self._embeddings is not None and self._embeddings.remote

    def prepare(self) -> None:
        """Take the vectors into memory before somebody waits for them. Raises StoreError."""
        if self._embeddings is not None:
            self._index.refresh()

    def search(self, query: Query, limit: int, *, by_words: bool = True, max_distance: float | None = None) -> Answer:
        """`by_words` False: by meaning alone, where that can be had.

        Raises:
            StoreError: the store cannot be read.
        """
        if query.empty:
            return Answer(notices=query.notices)
        notices = list(query.notices)
        try:
            vector: NDArray[np.float32] | None = self._vector(query.prose)
            wanted = Wanted(
                self._storage.passages.scope(query.filters), *self._storage.passages.required_and_excluded(query)
            )
        except _NoVectorsError as error:
            why = str(error) or ("" if by_words else "There are no vectors to compare: search went by words.")
            vector, wanted, by_words = None, Wanted(), True
            notices += filter(None, [why])
        words: dict[int, float] = {}
        if by_words:
            hits = self._storage.passages.search(query, DEPTH, enough=limit)
            words = {hit.number: hit.score for hit in hits}
        if vector is None:
            if max_distance is not None:
                notices.append("`maxDistance` was left out: there are no vectors to measure by.")
            return self._answer(alone(words), {}, limit, None, notices, self._asked(query))
        near = {each.number: each.cosine for each in self._index.nearest(vector, DEPTH, wanted)}
        weight = REMOTE_WEIGHT if self.remote else STATIC_WEIGHT
        if not words:  # nothing to fuse: then the score is the likeness
            return self._answer(_by_cosine(near), near, limit, max_distance, notices)
        ranked = fuse(words, near, weight)
        cosines = near | self._index.cosines(vector, words.keys() - near.keys())
        return self._answer(ranked, cosines, limit, max_distance, notices, self._asked(query))

    def related(self, source: Source, limit: int, *, same_document: bool) -> Answer:
        """Passages of the same collection that are about the same.

        Raises:
            StoreError: the store cannot be read.
        """
        own = self._storage.passages.numbers_of(source.collection, source.document)
        never = frozenset() if same_document else frozenset(own)
        filters = Filters(collections=(source.collection,))
        try:
            vector = self._vector(source.text) if source.text else self._centroid(own)
        except _NoVectorsError as error:
            return self._related_by_words(source, own, limit, never, str(error))
        scope = self._storage.passages.scope(filters)
        near = {each.number: each.cosine for each in self._index.nearest(vector, limit, Wanted(scope, never=never))}
        return self._answer(_by_cosine(near), near, limit, None, [])

    def _related_by_words(
        self, source: Source, own: Sequence[int], limit: int, never: frozenset[int], why: str
    ) -> Answer:
        text = source.text or " ".join(_titles(self._storage.passages.passages(own[:10]).values()))
        words = tuple(dict.fromkeys(_WORD.findall(text.lower())))[:MOST_WORDS_OF_A_TEXT]
        query = Query(words=words, filters=Filters(collections=(source.collection,)))
        hits = self._storage.passages.search(query, DEPTH + len(own), enough=DEPTH + len(own))
        scores = {hit.number: hit.score for hit in hits if hit.number not in never}
        notices = [*filter(None, [why]), "There are no vectors to compare: these have words in common."]
        return self._answer(alone(scores), {}, limit, None, notices, self._asked(query))

    def _asked(self, query: Query) -> Asked:
        return Asked(dict.fromkeys((*query.words, *query.must)), self._storage.passages.weights)

    def _vector(self, text: str) -> NDArray[np.float32]:
        """Raises _NoVectorsError."""
        if self._embeddings is None:
            raise _NoVectorsError
        stored = self._index.refresh()
        if stored is None:
            raise _NoVectorsError("The passages have no vectors yet: search went by words alone.")
        if self._failure is not None and self._clock() < self._failure[0]:
            raise _NoVectorsError(self._failure[1])
        try:
            wanted = self._embeddings.space(deadline_s=QUERY_DEADLINE_S)
            if wanted != stored:
                raise _NoVectorsError(str(MixedSpacesError(stored, wanted)))
            vector: NDArray[np.float32] = self._embeddings.embed([text], deadline_s=QUERY_DEADLINE_S)[0]
        except EmbeddingError as error:
            why = f"{error} Search went by words alone."
            self._failure = self._clock() + REST_S, why
            raise _NoVectorsError(why) from error
        self._failure = None
        if not vector.any():
            raise _NoVectorsError
        return vector

    def _centroid(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """Of vectors that are there already: whoever made them."""
        if self._index.refresh() is None:
            raise _NoVectorsError
        vector = self._index.centroid(numbers)
        if vector is None:
            raise _NoVectorsError
        return vector

    def _answer(
        self,
        ranked: dict[int, float],
        cosines: dict[int, float],
        limit: int,
        max_distance: float | None,
        notices: Sequence[str],
        asked: Asked | None = None,
    ) -> Answer:
        """`asked`: set where `ranked` only gives an order; scores are then scaled by what the passages have of it."""
        if max_distance is not None:
            ranked = {number: score for number, score in ranked.items() if _distance(number, cosines) <= max_distance}
        best = list(ranked)[: limit + SPARE]
        passages = self._storage.passages.passages(best)
        kept = [number for number in best if number in passages][:limit]
        scores = [min(1.0, max(0.0, ranked[number])) for number in kept]
        if asked is not None:
            shown = [max(asked.covered(_whole(passages[number])), cosines.get(number, 0.0)) for number in kept]
            scores = scaled(scores, shown)
        found = (
            Found(passages[number], score, _distance(number, cosines))
            for number, score in zip(kept, scores, strict=True)
        )
        return Answer(tuple(found), tuple(notices))


def _by_cosine(near: dict[int, float]) -> dict[int, float]:
    return {number: max(0.0, cosine) for number, cosine in near.items()}


def _distance(number: int, cosines: dict[int, float]) -> float:
    return min(2.0, max(0.0, 1 - cosines[number])) if number in cosines else UNKNOWN_DISTANCE


def _whole(passage: Passage) -> str:
    return f"{passage.title}\n{passage.chunk.heading or ''}\n{passage.chunk.text}"


def _titles(passages: Iterable[Passage]) -> list[str]:
    return [part for passage in passages for part in (passage.title, passage.chunk.heading) if part]
