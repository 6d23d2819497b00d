"""Hybrid search: by words, by meaning where there are vectors, and both fused into one ranking."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pointsman.archive.cpu_turns import computing
from pointsman.archive.embedding.base import EmbeddingError, Embeddings, comparable, passage_space
from pointsman.archive.embedding.passage_vectors import MixedSpacesError
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.search.circuit_breaker import CircuitBreaker
from pointsman.archive.search.evidence import WeightedQuery, scale
from pointsman.archive.search.fusion import DEPTH, REMOTE_WEIGHT, STATIC_WEIGHT, fuse, lead, normalize
from pointsman.archive.search.vectors import ChosenSearch
from pointsman.archive.store.base import Named, Passage, Storage, VectorFilter, VectorSearch
from pointsman.providers.text import FUNCTION_WORDS, has_cjk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUERY_DEADLINE_S = 10.0
UNKNOWN_DISTANCE = 1.0  # of a passage without a vector: neither near nor opposed
MAX_WORDS_OF_A_TEXT = 24
STATIC_NOISE = 0.2  # the cosine that the static model gives to unrelated texts
LOW_SCORE = 0.35  # measured: of the right first hits 2 % have less, of those for nonsense nine tenths
NO_WORD = "No passage has a word of the query: the results are the nearest in meaning and may not answer it."
LITTLE = "No passage covers much of the query: the results may not answer it. Try other words."
NOTHING = "No passage matches the query. Try fewer or other words."
SPARE = 10  # hits read beyond the limit, since some may have been removed meanwhile

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
    """What to find related passages for: a document, or a text from it."""

    collection: str
    document: str
    text: str | None = None


class _NoVectorsError(Exception):
    """Search by meaning is not possible. The message says why; it is empty where embeddings are off."""


class Searcher:
    """Thread-safe."""

    def __init__(
        self, storage: Storage, embeddings: Embeddings | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._embeddings = embeddings
        self._breaker = CircuitBreaker(clock)
        self._index: VectorSearch = ChosenSearch(storage.vectors, storage.vector_search)

    @property
    def remote(self) -> bool:
        return self._embeddings is not None and self._embeddings.remote

    def prepare(self) -> None:
        """Load the vectors ahead of the first search. Raises StoreError."""
        if self._embeddings is not None:
            self._index.refresh()

    def reading(self) -> AbstractContextManager[object]:
        """One view of the store for all that a search reads. None if it asks a remote model meanwhile."""
        return nullcontext() if self.remote else self._storage.reading()

    def search(self, query: Query, limit: int, *, by_words: bool = True, max_distance: float | None = None) -> Answer:
        """Find the best passages. `by_words` False: by meaning alone, where that is possible.

        Raises:
            StoreError: the store cannot be read.
        """
        if query.empty:
            return Answer(notices=query.notices)
        return _with_caution(self._search(query, limit, by_words, max_distance))

    def _search(self, query: Query, limit: int, by_words: bool, max_distance: float | None) -> Answer:
        notices = list(query.notices)
        with self.reading():
            try:
                vector: NDArray[np.float32] | None = self._embed(query.prose)
            except _NoVectorsError as error:
                why = str(error) or ("" if by_words else "There are no vectors to compare: searched by words instead.")
                vector, by_words = None, True
                notices += filter(None, [why])
            with self._storage.reading(), computing():
                return self._ranked(query, limit, vector, by_words, max_distance, notices)

    def _ranked(
        self,
        query: Query,
        limit: int,
        vector: NDArray[np.float32] | None,
        by_words: bool,
        max_distance: float | None,
        notices: list[str],
    ) -> Answer:
        words: dict[int, float] = {}
        named: dict[int, Named] = {}
        if by_words:
            content = _content_words(query)
            words = {hit.number: hit.score for hit in self._storage.passages.search(content, DEPTH, enough=limit)}
            named = self._storage.passages.with_identifiers(content)
        if vector is None:
            if max_distance is not None:
                notices.append("`maxDistance` was ignored: there are no vectors to compare.")
            ranked = lead(normalize(words), named)
            return self._answer(ranked, {}, limit, None, notices, self._weighted(query))
        passages = self._storage.passages
        wanted = VectorFilter(passages.scope(query.filters), *passages.required_and_excluded(query))
        near = {each.number: each.cosine for each in self._index.nearest(vector, DEPTH, wanted)}
        weight = REMOTE_WEIGHT if self.remote else STATIC_WEIGHT
        if not words:  # nothing to fuse
            if not by_words:
                return self._answer(near, near, limit, max_distance, notices)
            scores = self._by_cosine(near)
            best = self._storage.passages.passages(list(scores)[:limit]).values()
            known = self._weighted(query).known(list(map(_full_text, best)))
            scores = {number: known * score for number, score in scores.items()}
            if near and not has_cjk(" ".join(query.words)):  # there, text without spaces is one word
                notices.append(NO_WORD)
            return self._answer(scores, near, limit, max_distance, notices)
        ranked = lead(fuse(words, near, weight), named)
        compared = ranked if max_distance is not None else list(ranked)[: limit + SPARE]  # what is shown
        cosines = near | self._index.cosines(vector, [number for number in compared if number not in near])
        return self._answer(ranked, cosines, limit, max_distance, notices, self._weighted(query))

    def related(self, source: Source, limit: int, *, same_document: bool) -> Answer:
        """Find passages of the same collection on the same subject.

        Raises:
            StoreError: the store cannot be read.
        """
        own = self._storage.passages.numbers_of(source.collection, source.document)
        never = frozenset() if same_document else frozenset(own)
        filters = Filters(collections=(source.collection,))
        try:
            vector = self._embed(source.text) if source.text else self._centroid(own)
        except _NoVectorsError as error:
            return self._related_by_words(source, own, limit, never, str(error))
        scope = self._storage.passages.scope(filters)
        near = {
            each.number: each.cosine for each in self._index.nearest(vector, limit, VectorFilter(scope, never=never))
        }
        return self._answer(near, near, limit, None, [])

    def _related_by_words(
        self, source: Source, own: Sequence[int], limit: int, never: frozenset[int], why: str
    ) -> Answer:
        text = source.text or " ".join(_titles(self._storage.passages.passages(own[:10]).values()))
        words = tuple(dict.fromkeys(_WORD.findall(text.lower())))[:MAX_WORDS_OF_A_TEXT]
        query = Query(words=words, filters=Filters(collections=(source.collection,)))
        hits = self._storage.passages.search(query, DEPTH + len(own), enough=DEPTH + len(own))
        scores = {hit.number: hit.score for hit in hits if hit.number not in never}
        notices = [*filter(None, [why]), "There are no vectors to compare: these passages have words in common."]
        return self._answer(normalize(scores), {}, limit, None, notices, self._weighted(query))

    def _weighted(self, query: Query) -> WeightedQuery:
        return WeightedQuery(dict.fromkeys((*query.words, *query.must)), self._storage.passages.weights)

    def _by_cosine(self, cosines: dict[int, float]) -> dict[int, float]:
        """Scores from 0 to 1."""
        noise = 0.0 if self.remote else STATIC_NOISE
        return {number: max(0.0, (cosine - noise) / (1 - noise)) for number, cosine in cosines.items()}

    def _embed(self, text: str) -> NDArray[np.float32]:
        """Raises _NoVectorsError."""
        embeddings = self._embeddings
        if embeddings is None:
            raise _NoVectorsError
        stored = self._index.refresh()
        if stored is None:
            raise _NoVectorsError("The passages have no vectors yet: searched by words alone.")

        def embed() -> NDArray[np.float32]:
            wanted = passage_space(embeddings, deadline_s=QUERY_DEADLINE_S)
            if not comparable(stored, wanted):
                raise _NoVectorsError(str(MixedSpacesError(stored, wanted)))
            vector: NDArray[np.float32] = embeddings.embed([text], deadline_s=QUERY_DEADLINE_S)[0]
            return vector

        try:
            vector = self._breaker.run(embed)
        except EmbeddingError as error:
            raise _NoVectorsError(f"{error} Searched by words alone.") from error
        if not vector.any():
            raise _NoVectorsError
        return vector

    def _centroid(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """From stored vectors, whichever model made them. Raises _NoVectorsError."""
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
        weighted: WeightedQuery | None = None,
    ) -> Answer:
        """`weighted`: the query, if `ranked` only gives an order; coverage then scales the scores."""
        if max_distance is not None:
            ranked = {number: score for number, score in ranked.items() if _distance(number, cosines) <= max_distance}
        best = list(ranked)[: limit + SPARE]
        passages = self._storage.passages.passages(best[:limit])
        if len(passages) < limit < len(best):  # some were removed meanwhile
            passages |= self._storage.passages.passages(best[limit:])
        existing = [number for number in best if number in passages][:limit]
        scores = [min(1.0, max(0.0, ranked[number])) for number in existing]
        if weighted is not None:
            meaning = self._by_cosine(cosines)
            hits = [(_full_text(passages[number]), meaning.get(number, 0.0)) for number in existing]
            scores = scale(scores, weighted.evidence(hits))
        found = (
            Found(passages[number], score, _distance(number, cosines))
            for number, score in zip(existing, scores, strict=True)
        )
        return Answer(tuple(found), tuple(notices))


def _with_caution(answer: Answer) -> Answer:
    """Say so where nothing answers the query well."""
    if NO_WORD in answer.notices or (answer.found and answer.found[0].relevance >= LOW_SCORE):
        return answer
    return replace(answer, notices=(*answer.notices, LITTLE if answer.found else NOTHING))


def _content_words(query: Query) -> Query:
    """Without articles, pronouns and the like, which would count as much as a name in a short archive."""
    words = tuple(word for word in query.words if word not in FUNCTION_WORDS)
    return replace(query, words=words) if words or query.must else query


def _distance(number: int, cosines: dict[int, float]) -> float:
    return min(2.0, max(0.0, 1 - cosines[number])) if number in cosines else UNKNOWN_DISTANCE


def _full_text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.chunk.heading or ''}\n{passage.chunk.text}"


def _titles(passages: Iterable[Passage]) -> list[str]:
    return [part for passage in passages for part in (passage.title, passage.chunk.heading) if part]
