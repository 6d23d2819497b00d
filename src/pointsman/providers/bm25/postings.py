"""rank_bm25's BM25Plus with its postings in numpy arrays: the same figures, without a loop over all documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

Floats = NDArray[np.float64]
Rows = NDArray[np.int32]
Counted = tuple[NDArray[np.int32], NDArray[np.int32]]  # the words of a document, each once, and how often it has them

K1 = 3.2
B = 0.6
DELTA = 1.0
# The exponent of idf in our own ranking. Below 1, one rare word, often a value such as a city, decides less alone.
RARITY = 0.9


class Postings(BM25Plus):  # type: ignore[misc]  # rank_bm25 has no types
    """An index over documents whose words are numbers. May be empty."""

    idf: dict[int, float]
    corpus_size: int
    rarest: float  # the idf of a word that no document has

    def __init__(self, corpus: Sequence[Counted], k1: float = K1, b: float = B, delta: float = DELTA) -> None:
        self._terms: dict[int, tuple[Rows, Floats, float]] = {}
        self._worths: dict[int, float] = {}
        super().__init__(corpus, k1=k1, b=b, delta=delta)  # pyright: ignore[reportArgumentType]

    def get_scores(self, query: Iterable[int]) -> Floats:
        """As the parent: every document has a score, even if it has none of the words."""
        scores = np.zeros(self.corpus_size)
        for word in query:
            term = self._terms.get(word) or self._term(word)
            if term is None:
                continue
            rows, with_it, without_it = term
            theirs = scores.take(rows)
            theirs += with_it
            scores += without_it
            scores[rows] = theirs
        return scores

    def matching(self, word: int, most: float = np.inf) -> tuple[Rows, Floats]:
        """The documents that have the word, and the gain of each: the score without the part that all documents get.

        `most` bounds the worth of a synonym, which is worth no more than the word it stands for.
        """
        rows, gains = self._of(word)
        return rows, min(self.worth(word), most) * gains

    def worth(self, word: int) -> float:
        """The idf of a word, with its differences reduced; that of the rarest stays as it is."""
        worth = self._worths.get(word)
        if worth is None:
            worth = self._worths[word] = self.rarest * (self.idf[word] / self.rarest) ** RARITY
        return worth

    def has(self, row: int, word: int) -> bool:
        if word not in self.idf:
            return False
        rows, _ = self._of(word)
        place = int(rows.searchsorted(row))
        return place < len(rows) and int(rows[place]) == row

    def _term(self, word: int) -> tuple[Rows, Floats, float] | None:
        """What a word adds to the documents that have it, and to the others; computed at first use."""
        idf = self.idf.get(word)
        if idf is None:
            return None
        rows, gains = self._of(word)
        term = self._terms[word] = rows, idf * (self.delta + gains), idf * self.delta
        return term

    def _of(self, word: int) -> tuple[Rows, Floats]:
        place = self._places(word)
        return self._rows[place], self._gains[place]

    def _initialize(self, corpus: Sequence[Counted]) -> dict[int, int]:
        """Lay out, for each word, the documents that have it and what it is worth in each, in units of its idf."""
        none = np.empty(0, dtype=np.int32)
        words = np.concatenate([none, *(words for words, _ in corpus)])
        counts = np.concatenate([none, *(counts for _, counts in corpus)])
        self.corpus_size = len(corpus)
        self.rarest = float(np.log(self.corpus_size + 1))
        rows = np.repeat(np.arange(self.corpus_size, dtype=np.int32), [len(words) for words, _ in corpus])
        lengths = np.bincount(rows, weights=counts, minlength=self.corpus_size)
        self.avgdl = lengths.sum() / self.corpus_size if lengths.any() else 1.0  # never divided by zero
        # Exactly the parent's formula, so that the figures agree to the last bit.
        gains = (counts * (self.k1 + 1)) / (self.k1 * (1 - self.b + self.b * lengths[rows] / self.avgdl) + counts)
        order, self._places = by_word(words)
        self._rows: Rows = rows[order]
        self._gains: Floats = gains[order]
        documents = np.bincount(words)
        present = documents.nonzero()[0]
        return dict(zip(present.tolist(), documents[present].tolist(), strict=True))


def by_word(words: NDArray[np.int32]) -> tuple[NDArray[np.intp], Callable[[int], slice]]:
    """The order that groups equal words, and the span of each word in it."""
    ends = np.cumsum(np.bincount(words)).tolist()

    def place(word: int) -> slice:
        if word >= len(ends):
            return slice(0, 0)
        return slice(ends[word - 1] if word else 0, ends[word])

    return np.argsort(words, kind="stable"), place
