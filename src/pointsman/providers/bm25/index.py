"""The index of one set of tools: scores each tool for a query, and turns the scores into a relevance.

The relevance is the probability that the best hit is what was asked for: a logistic function, fitted on public sets of
tools and requests, with right hits on one side and the best hits for requests that were made for other catalogs on the
other (figures: docs/concepts/search.md, fit: bench/quality/calibrate.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import Prepared, Vocabulary
from pointsman.providers.bm25.names import ExactNames, NameCoverage
from pointsman.providers.bm25.postings import Floats, Postings, Rows
from pointsman.providers.bm25.query import PAIR_LENGTH, SYNONYM_WEIGHT, Query, synonyms_of
from pointsman.providers.embeddings import Embedder, unit
from pointsman.providers.semantic.tool_encoder import SentenceMatch
from pointsman.providers.text import has_cjk

Vectors = NDArray[np.float32]
Array = TypeVar("Array", Floats, NDArray[np.float32])

MEANING_WEIGHT = 0.5  # the rest is for the words
# With the sentence encoder: words .4, meaning .25, sentences .35.
SENTENCE_WEIGHT = 0.35
MEANING_BESIDE_SENTENCES = 0.385  # of the rest
NAME_WEIGHT = 0.05  # of the share of the name that the query has
SIMILAR = 0.15  # the cosine from which a tool without any of the words is shown
SIMILAR_SENTENCE = 0.3  # the same for the sentence encoder
FALL = 3  # how fast the tools behind the best lose relevance with their share of its score

# Where the fitted sets end: size and length count no further.
SMALLEST = 200  # tools
SHORTEST = 8  # words
# Coefficients of the fit: the intercept, then one for each of `features`.
WORDS_ALONE = (1.83, 1.04, 0.83, -0.54, -1.26)
WITH_MEANING = (2.36, 0.86, 0.58, -0.72, -1.39, 5.48)
WITH_SENTENCES = (2.24, 0.85, 0.45, -0.85, -1.42, 1.6, 7.65)


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of all tools for one query, in the order of the index."""

    scores: Floats
    best: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Match(Generic[Array]):
    """How well each tool matches a query, by words or by meaning."""

    whole: Array  # the whole query
    part: Array  # the sentence of it that matches best


@dataclass(frozen=True, slots=True)
class Meaning:
    """The embeddings of the tools, a row for each, and the model for those of queries."""

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
        self._name_coverage = NameCoverage(documents, self._postings.idf)

    def fit(self, query: Query, sentence: SentenceMatch | None = None) -> Floats:
        """The probability that each tool is what was asked for; 0 for tools that match neither words nor meaning.

        `sentence` is the match by the sentence encoder, if that is in use.
        """
        scored = self.score(query, sentence)
        if scored is None:
            return np.zeros(len(self.documents))
        share: Floats = scored.scores / scored.scores[scored.best]
        return relevance(scored.evidence) * share**FALL

    def score(self, query: Query, sentence: SentenceMatch | None = None) -> Scored | None:
        """None: no tool matches."""
        if not query.tokens or not self.documents:
            return None
        by_words = self._match_words(query)
        by_meaning = self._match_meaning(query)
        words = by_words.whole + by_words.part
        matches = words > 0
        scores = _shares_of_best(words)
        if by_meaning is not None:
            similarity = by_meaning.whole + by_meaning.part
            matches |= similarity >= 2 * SIMILAR
            meaning = MEANING_WEIGHT if sentence is None else MEANING_BESIDE_SENTENCES
            scores = (1 - meaning) * scores + meaning * _shares_of_best(similarity)
        if sentence is not None:
            matches |= sentence.cosines >= SIMILAR_SENTENCE
            scores = (1 - SENTENCE_WEIGHT) * scores + SENTENCE_WEIGHT * sentence.shares
        if not matches.any():
            return None
        numbers = [number for token in query.tokens if (number := self.vocabulary.get(token)) is not None]
        scores += NAME_WEIGHT * self._name_coverage.of(numbers)
        scores *= matches
        best = int(scores.argmax())
        rarest = self._postings.rarest
        evidence = Evidence(
            coverage=self._coverage(query, best),
            score=float(by_words.whole[best]) / rarest,
            part_score=float(by_words.part[best]) / rarest,
            cosine=None if by_meaning is None else float(by_meaning.part[best]),
            sentence=None if sentence is None else float(sentence.cosines[best]),
            words=query.length,
            tools=len(self.documents),
        )
        return Scored(scores, best, evidence)

    def _match_words(self, query: Query) -> Match[Floats]:
        """The part of BM25Plus that depends on the query."""
        several = len(query.parts) > 1
        scores = np.zeros((1 + len(query.parts) if several else 1, len(self.documents)))
        for token in query.tokens:
            gains = self._gains(token)
            if gains is None:
                continue
            rows, values = gains
            scores[0, rows] += values
            for number, part in enumerate(query.parts if several else (), 1):
                if token in part:
                    scores[number, rows] += values
        return Match(scores[0], scores[1:].max(axis=0) if several else scores[0])

    def _gains(self, token: str) -> tuple[Rows, Floats] | None:
        """The tools that have a token or one of its synonyms, and the gain of each by the better of them."""
        idf = self._postings.idf
        word = self._number(token)
        others = [other for synonym in synonyms_of(token) if (other := self._number(synonym)) is not None]
        if not others:
            return None if word is None else self._postings.matching(word)
        most = np.inf if word is None else idf[word]
        gained = np.zeros(len(self.documents))
        for other in others:
            rows, values = self._postings.matching(other, most)
            gained[rows] = np.maximum(gained[rows], SYNONYM_WEIGHT * values)
        if word is not None:
            rows, values = self._postings.matching(word)
            gained[rows] = np.maximum(gained[rows], values)
        rows = gained.nonzero()[0].astype(np.int32)
        return rows, gained[rows]

    def _number(self, token: str) -> int | None:
        number = self.vocabulary.get(token)
        return number if number in self._postings.idf else None

    def _match_meaning(self, query: Query) -> Match[Vectors] | None:
        if self._meaning is None or not query.embedded:
            return None
        parts = self._meaning.embedder.sums(query.embedded)
        whole: Vectors = self._meaning.vectors @ unit(parts.sum(axis=0, keepdims=True))[0]
        if len(parts) == 1:
            return Match(whole, whole)
        return Match(whole, (self._meaning.vectors @ unit(parts).T).max(axis=1))

    def _coverage(self, query: Query, row: int) -> float:
        total = covered = 0.0
        for token in query.tokens:
            word = self._number(token)
            if word is None:
                total += self._postings.rarest * (PAIR_LENGTH if has_cjk(token) else 1)
                continue
            idf = self._postings.idf[word]
            total += idf
            if self._postings.has(row, word):
                covered += idf
        return covered / total if total else 0.0


def _shares_of_best(figures: Floats | Vectors) -> Floats:
    """As shares of the highest figure, none below 0."""
    best = figures.max(initial=0)
    shares = np.maximum(figures, 0).astype(np.float64)
    return shares / best if best > 0 else shares


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for the best hit of one query."""

    coverage: float  # the share of the query's words that it has; rare words count more
    score: float  # of the words that it has, in units of the rarest
    part_score: float  # the same for the sentence that matches best
    cosine: float | None  # between that sentence and the tool; None: not compared
    sentence: float | None  # the same cosine by the sentence encoder
    words: float  # in the query
    tools: int  # in the index: among many, a seeming match is more likely by chance


def relevance(evidence: Evidence) -> float:
    figures = features(evidence)
    weights = next(each for each in (WORDS_ALONE, WITH_MEANING, WITH_SENTENCES) if len(each) == 1 + len(figures))
    sum_ = weights[0] + sum(weight * figure for weight, figure in zip(weights[1:], figures, strict=True))
    return 1 / (1 + math.exp(-sum_))


def features(evidence: Evidence) -> tuple[float, ...]:
    """The variables of the fit."""
    size = math.log(max(evidence.tools, SMALLEST))
    length = math.log1p(max(evidence.words, SHORTEST))
    figures = (evidence.coverage * evidence.score, evidence.part_score, size, length)
    return (*figures, *[cosine for cosine in (evidence.cosine, evidence.sentence) if cosine is not None])
