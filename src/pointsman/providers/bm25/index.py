"""One set of tools, ready to be searched: how well does each fit a query?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import Prepared, Vocabulary
from pointsman.providers.bm25.exact import ExactNames
from pointsman.providers.bm25.names import Names
from pointsman.providers.bm25.postings import Floats, Postings, Rows
from pointsman.providers.bm25.query import PAIR_LENGTH, Query
from pointsman.providers.bm25.relevance import FALL, Evidence, relevance
from pointsman.providers.bm25.synonyms import WEIGHT, synonyms_of
from pointsman.providers.embeddings import Embedder, unit
from pointsman.providers.text import has_cjk

Vectors = NDArray[np.float32]
Array = TypeVar("Array", Floats, NDArray[np.float32])

MEANING_WEIGHT = 0.5  # beside the words
NAME_WEIGHT = 0.05  # of the share of the name that the query has
SIMILAR = 0.15  # cosine from which a tool without any of the words is worth showing


@dataclass(frozen=True, slots=True)
class Ranking:
    """All tools for one query, in the order of the index."""

    scores: Floats
    best: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Figures(Generic[Array]):
    """One for each tool."""

    whole: Array  # for the whole query
    part: Array  # for the sentence of it that fits best


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the tools mean, a row for each, and how to find out what a query means."""

    vectors: Vectors
    embedder: Embedder


class Index:
    def __init__(
        self,
        tools: Sequence[ToolDocument],
        documents: Sequence[Prepared],
        vocabulary: Vocabulary,
        meaning: Meaning | None,
    ) -> None:
        self.tool_keys = [tool.tool_key for tool in tools]
        self.exact_names = ExactNames(tools)
        self.documents = documents
        self.vocabulary = vocabulary
        self._meaning = meaning
        self._postings = Postings([(document.words, document.counts) for document in documents])
        self._names = Names(documents, self._postings.idf)

    def fit(self, query: Query) -> Floats:
        """The probability of each tool to be what was asked for; 0 for those that have nothing to do with it."""
        ranking = self.rank(query)
        if ranking is None:
            return np.zeros(len(self.documents))
        share: Floats = ranking.scores / ranking.scores[ranking.best]
        return relevance(ranking.evidence) * share**FALL

    def rank(self, query: Query) -> Ranking | None:
        """None: no tool has anything to do with it."""
        if not query.said or not self.documents:
            return None
        by_words = self._words(query)
        by_meaning = self._cosines(query)
        words = by_words.whole + by_words.part
        found = words > 0
        scores = _of_best(words)
        if by_meaning is not None:
            similarity = by_meaning.whole + by_meaning.part
            found |= similarity >= 2 * SIMILAR
            scores = (1 - MEANING_WEIGHT) * scores + MEANING_WEIGHT * _of_best(similarity)
        if not found.any():
            return None
        known = [number for token in query.said if (number := self.vocabulary.get(token)) is not None]
        scores += NAME_WEIGHT * self._names.coverage(known)
        scores *= found
        best = int(scores.argmax())
        rarest = self._postings.rarest
        evidence = Evidence(
            coverage=self._coverage(query, best),
            score=float(by_words.whole[best]) / rarest,
            part_score=float(by_words.part[best]) / rarest,
            cosine=None if by_meaning is None else float(by_meaning.part[best]),
            words=query.length,
            tools=len(self.documents),
        )
        return Ranking(scores, best, evidence)

    def _words(self, query: Query) -> Figures[Floats]:
        """The matching part of BM25Plus."""
        several = len(query.parts) > 1
        scores = np.zeros((1 + len(query.parts) if several else 1, len(self.documents)))
        for token in query.said:
            gains = self._gains(token)
            if gains is None:
                continue
            rows, values = gains
            scores[0, rows] += values
            for number, part in enumerate(query.parts if several else (), 1):
                if token in part:
                    scores[number, rows] += values
        return Figures(scores[0], scores[1:].max(axis=0) if several else scores[0])

    def _gains(self, token: str) -> tuple[Rows, Floats] | None:
        """Who has a token or one of its synonyms, and what each gains by the better of them."""
        idf = self._postings.idf
        word = self._number(token)
        others = [other for synonym in synonyms_of(token) if (other := self._number(synonym)) is not None]
        if not others:
            return None if word is None else self._postings.matching(word)
        most = np.inf if word is None else idf[word]
        gained = np.zeros(len(self.documents))
        for other in others:
            rows, values = self._postings.matching(other, most)
            gained[rows] = np.maximum(gained[rows], WEIGHT * values)
        if word is not None:
            rows, values = self._postings.matching(word)
            gained[rows] = np.maximum(gained[rows], values)
        rows = gained.nonzero()[0].astype(np.int32)
        return rows, gained[rows]

    def _number(self, token: str) -> int | None:
        number = self.vocabulary.get(token)
        return number if number in self._postings.idf else None

    def _cosines(self, query: Query) -> Figures[Vectors] | None:
        if self._meaning is None or not query.meant:
            return None
        parts = self._meaning.embedder.sums(query.meant)
        whole: Vectors = self._meaning.vectors @ unit(parts.sum(axis=0, keepdims=True))[0]
        if len(parts) == 1:
            return Figures(whole, whole)
        return Figures(whole, (self._meaning.vectors @ unit(parts).T).max(axis=1))

    def _coverage(self, query: Query, row: int) -> float:
        total = had = 0.0
        for token in query.said:
            word = self._number(token)
            if word is None:
                total += self._postings.rarest * (PAIR_LENGTH if has_cjk(token) else 1)
                continue
            idf = self._postings.idf[word]
            total += idf
            if self._postings.has(row, word):
                had += idf
        return had / total if total else 0.0


def _of_best(figures: Floats | Vectors) -> Floats:
    """As shares of the best, none below 0."""
    best = figures.max(initial=0)
    shares = np.maximum(figures, 0).astype(np.float64)
    return shares / best if best > 0 else shares
