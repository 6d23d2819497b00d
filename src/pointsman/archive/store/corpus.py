"""Which passages there are, in one state of the store. Independent of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pointsman.archive.store.base import Scope
from pointsman.archive.store.postings import Flags, Numbers

Scores = npt.NDArray[np.float64]
SmallNumbers = npt.NDArray[np.int32]

K1, B = 1.2, 0.75


@dataclass(frozen=True)
class Corpus:
    """All passages, by number; arrays of the same length.

    The first three never change for a passage, so that states of the store share them: they also have deleted ones.
    """

    document_of: SmallNumbers
    collection_of: SmallNumbers
    lengths: SmallNumbers  # words of each passage
    alive: Flags  # neither deleted nor unused
    words: int  # of all that are alive
    tombstones: int = 0  # the last deletion that it knows of

    @classmethod
    def of(cls, document_of: SmallNumbers, collection_of: SmallNumbers, lengths: SmallNumbers) -> Corpus:
        """All that have a document."""
        alive = document_of > 0
        return cls(document_of, collection_of, lengths, alive, int(lengths[alive].sum(dtype=np.int64)))

    @property
    def last(self) -> int:
        """The highest number."""
        return len(self.alive) - 1

    @cached_property
    def total(self) -> int:
        return int(np.count_nonzero(self.alive))

    @cached_property
    def norms(self) -> Scores:
        """How the length of each passage damps the frequency of its words."""
        average = float(self.words) / max(1, self.total)
        norms: Scores = self.lengths.astype(np.float64)
        norms /= average or 1.0
        norms *= B
        norms += 1 - B
        norms *= K1
        return norms

    @cached_property
    def passages_of(self) -> Numbers:
        """How many each document has, by its number."""
        return np.bincount(self.document_of[self.alive], minlength=int(self.document_of.max(initial=0)) + 1)

    def documents(self, passages: Numbers) -> Numbers:
        """The document of each passage."""
        return self.document_of[passages].astype(np.int64)

    def within(self, scope: Scope) -> Flags:
        allowed = self.alive
        for of, chosen in ((self.collection_of, scope.collections), (self.document_of, scope.documents)):
            if chosen is not None:
                table = np.zeros(int(of.max(initial=0)) + 1, np.bool_)
                table[[number for number in chosen if number < len(table)]] = True
                allowed = allowed & table[of]
        return allowed
