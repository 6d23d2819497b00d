"""How much of each tool's name a query has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pointsman.providers.bm25.documents import IN_NAME, Prepared
from pointsman.providers.bm25.postings import Floats, by_word


class Names:
    """Who is asked for by name should be found: `list tables` is all of `list_tables`, but half of `drop_tables`."""

    def __init__(self, documents: Sequence[Prepared], idf: Mapping[int, float]) -> None:
        self._size = len(documents)
        places = np.concatenate([np.empty(0, dtype=np.uint8), *(document.places for document in documents)])
        named = (places & IN_NAME).astype(bool)
        words = np.concatenate([np.empty(0, dtype=np.int32), *(document.words for document in documents)])[named]
        rows = np.repeat(np.arange(self._size), [len(document.words) for document in documents])[named]
        weights = np.array([idf[word] for word in words.tolist()])
        shares = weights / np.bincount(rows, weights=weights, minlength=self._size)[rows]
        order, self._places = by_word(words)
        self._rows = rows[order]
        self._shares: Floats = shares[order]

    def coverage(self, query: Iterable[int]) -> Floats:
        """From 0 to 1 for each tool; rare words count more."""
        covered = np.zeros(self._size)
        for word in query:
            place = self._places(word)
            covered[self._rows[place]] += self._shares[place]
        return covered
