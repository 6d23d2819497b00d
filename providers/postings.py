"""rank_bm25's BM25Plus with its scores laid out in numpy: the same figures, without a loop over all documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

K1 = 3.2
B = 0.6
DELTA = 1.0


class Postings(BM25Plus):  # type: ignore[misc]  # rank_bm25 has no types
    """An index over documents that are already tokens. May be empty."""

    def __init__(self, corpus: Sequence[list[str]], k1: float = K1, b: float = B, delta: float = DELTA) -> None:
        # The parent divides by the number of documents and by their mean length.
        self.empty = not any(corpus)
        super().__init__(corpus if not self.empty else [[""]], k1=k1, b=b, delta=delta)
        if self.empty:
            self.corpus_size = len(corpus)
            self.idf: dict[str, float] = {}
        self._rows, self._gains = self._lay_out()
        self.doc_freqs: list[dict[str, int]] = []  # the parent's way to the same figures, not needed any more

    def get_scores(self, query: Iterable[str]) -> Floats:
        """As the parent: every document scores, also those that have none of the words."""
        scores = np.zeros(self.corpus_size)
        for word in query:
            idf = self.idf.get(word)
            if idf is None:
                continue
            factors = np.full(self.corpus_size, float(self.delta))
            factors[self._rows[word]] = self.delta + self._gains[word]
            scores += idf * factors
        return scores

    def matching(self, query: Iterable[str]) -> Floats:
        """What a document gains by the words it has: the scores without the part that all documents get."""
        scores = np.zeros(self.corpus_size)
        for word in query:
            idf = self.idf.get(word)
            if idf is not None:
                scores[self._rows[word]] += idf * self._gains[word]
        return scores

    def coverage(self, query: Sequence[str], row: int) -> float:
        """How much of the query a document has, from 0 to 1; rare words count more, unknown ones most."""
        rarest = float(np.log(self.corpus_size + 1))
        total = had = 0.0
        for word in query:
            idf = self.idf.get(word, rarest)
            total += idf
            if word in self._rows and _holds(self._rows[word], row):
                had += idf
        return had / total if total else 0.0

    def _lay_out(self) -> tuple[dict[str, Rows], dict[str, Floats]]:
        """For each word the documents that have it, in order, and what it is worth in each, in units of its idf."""
        rows: dict[str, list[int]] = {word: [] for word in self.idf}
        counts: dict[str, list[int]] = {word: [] for word in self.idf}
        if self.empty:
            return {}, {}
        for row, frequencies in enumerate(self.doc_freqs):
            for word, count in frequencies.items():
                rows[word].append(row)
                counts[word].append(count)
        lengths = np.array(self.doc_len)
        ends = np.cumsum([len(found) for found in rows.values()])[:-1]
        flat_rows = np.array([row for found in rows.values() for row in found], dtype=np.intp)
        flat_counts = np.array([count for found in counts.values() for count in found])
        # To the letter the parent's formula, so that the figures agree to the last bit.
        gains: Any = (flat_counts * (self.k1 + 1)) / (
            self.k1 * (1 - self.b + self.b * lengths[flat_rows] / self.avgdl) + flat_counts
        )
        return (
            dict(zip(rows, np.split(flat_rows, ends), strict=True)),
            dict(zip(rows, np.split(gains, ends), strict=True)),
        )


def _holds(rows: Rows, row: int) -> bool:
    place = int(np.searchsorted(rows, row))
    return place < len(rows) and bool(rows[place] == row)
