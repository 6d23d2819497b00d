"""rank_bm25's BM25Plus with its postings laid out in numpy: the same figures, without a loop over all documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

Floats = NDArray[np.float64]

K1 = 3.2
B = 0.6
DELTA = 1.0


class Postings(BM25Plus):  # type: ignore[misc]  # rank_bm25 has no types
    """An index over documents given as word -> number of times. May be empty."""

    idf: dict[str, float]
    corpus_size: int

    def __init__(self, corpus: Sequence[Mapping[str, int]], k1: float = K1, b: float = B, delta: float = DELTA) -> None:
        super().__init__(corpus, k1=k1, b=b, delta=delta)

    def get_scores(self, query: Iterable[str]) -> Floats:
        """As the parent: every document scores, also those that have none of the words."""
        scores = np.zeros(self.corpus_size)
        for word in query:
            place = self._places.get(word)
            if place is not None:
                factors = np.full(self.corpus_size, float(self.delta))
                factors[self._rows[place]] = self.delta + self._gains[place]
                scores += self.idf[word] * factors
        return scores

    def matching(self, query: Iterable[str]) -> Floats:
        """What a document gains by the words it has: the scores without the part that all documents get."""
        scores = np.zeros(self.corpus_size)
        for word in query:
            place = self._places.get(word)
            if place is not None:
                scores[self._rows[place]] += self.idf[word] * self._gains[place]
        return scores

    def coverage(self, query: Iterable[str], row: int) -> float:
        """How much of the query a document has, from 0 to 1; rare words count more, unknown ones most."""
        rarest = float(np.log(self.corpus_size + 1))
        total = had = 0.0
        for word in query:
            idf = self.idf.get(word, rarest)
            total += idf
            place = self._places.get(word)
            if place is not None and (self._rows[place] == row).any():
                had += idf
        return had / total if total else 0.0

    def _initialize(self, corpus: Sequence[Mapping[str, int]]) -> dict[str, int]:
        """Lay out, for each word, the documents that have it and what it is worth in each, in units of its idf."""
        sizes = np.array([len(document) for document in corpus], dtype=np.intp)
        lengths = np.array([sum(document.values()) for document in corpus], dtype=np.int64)
        self.corpus_size = len(corpus)
        self.avgdl = lengths.sum() / self.corpus_size if lengths.any() else 1.0  # never divided by zero
        numbers: dict[str, int] = {}
        words = np.array([numbers.setdefault(word, len(numbers)) for word in chain(*corpus)], dtype=np.intp)
        counts = np.array([count for document in corpus for count in document.values()], dtype=np.int64)
        rows = np.repeat(np.arange(self.corpus_size), sizes)
        # To the letter the parent's formula, so that the figures agree to the last bit.
        gains = (counts * (self.k1 + 1)) / (self.k1 * (1 - self.b + self.b * lengths[rows] / self.avgdl) + counts)
        by_word = np.argsort(words, kind="stable")
        self._rows = rows[by_word]
        self._gains: Floats = gains[by_word]
        documents = np.bincount(words, minlength=len(numbers)).tolist()
        ends = np.cumsum(documents).tolist()
        self._places = {
            word: slice(end - count, end) for word, count, end in zip(numbers, documents, ends, strict=True)
        }
        return dict(zip(numbers, documents, strict=True))
