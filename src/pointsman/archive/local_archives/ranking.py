"""Scores of documents for a query, from 0 to 1, computed for all of them at once. Pure.

A document with every word as written scores above .5, one with some of them below that, and one with corrected words
only below .1: a guess never ranks above what was asked for. (Words that very many passages have do not count for
this.) Within each band count the frequency of each word, and whether the words are in the title, in one passage, and
adjacent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_TEXT, _TITLE, _TOGETHER, _PHRASE = 0.5, 0.2, 0.2, 0.1
_ALL_WRITTEN = 0.5  # the lowest score with every word as written
_SOME_WRITTEN = 0.1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where documents match the query; tables have a row for each term and a column for each document."""

    fits: Table  # of the best reading of the term: 1 as written, less when corrected, 0 if absent
    counts: Table  # passages with the term
    titled: Flags
    together: Flags  # one value for each document: a passage has all terms
    phrase: Flags  # one value for each document: a passage has them as a phrase
    lengths: Table  # passages of the document


def scores(evidence: Evidence, weights: Table, selective: Flags) -> Table:
    """`weights`: by rarity. `selective`: the terms that count as written or not, as opposed to common ones."""
    shares = weights / weights.sum()
    length = evidence.lengths / max(1.0, float(evidence.lengths.mean()))
    saturation = evidence.counts / (evidence.counts + 0.5 + 0.5 * length)  # the first passages count most
    text = shares @ (evidence.fits * (0.5 + 0.5 * saturation))
    title = shares @ (evidence.fits * evidence.titled)
    near = (shares @ evidence.fits) * (_TOGETHER * evidence.together + _PHRASE * evidence.phrase)
    relevance = _TEXT * text + _TITLE * title + near
    written = evidence.fits[selective] == 1.0
    partly = np.where(
        written.any(axis=0), _SOME_WRITTEN + (_ALL_WRITTEN - _SOME_WRITTEN) * relevance, _SOME_WRITTEN * relevance
    )
    scored: Table = np.where(written.all(axis=0), _ALL_WRITTEN + (1 - _ALL_WRITTEN) * relevance, partly)
    return scored
