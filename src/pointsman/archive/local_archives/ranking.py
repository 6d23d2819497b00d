"""How well documents answer a query, from 0 to 1, all of them at once. Pure.

A document that has every word as it was written scores above .5, one that has some of them so below that, and one that
has nothing but corrected words below .1: a guess of ours never comes before what was asked for. (Words that very many
passages have tell nothing, and do not count for this.) Within each part count how much of each word there is, whether
the words stand in the title, in one passage, and next to each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_TEXT, _TITLE, _TOGETHER, _PHRASE = 0.5, 0.2, 0.2, 0.1
_WHOLE = 0.5
_WRITTEN = 0.1


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the documents have of the query: tables have a row for each term and a column for each document."""

    fits: Table  # how well the best reading of the term fits: 1 as written, less when corrected, 0 if it is not there
    counts: Table  # passages with the term
    titled: Flags
    together: Flags  # one value for each document: some passage has all the terms
    phrase: Flags  # and in some they follow each other
    lengths: Table  # passages of the document


def scores(evidence: Evidence, weights: Table, telling: Flags) -> Table:
    """`weights`: how much each term tells. `telling`: those that a document must have to have all."""
    shares = weights / weights.sum()
    length = evidence.lengths / max(1.0, float(evidence.lengths.mean()))
    saturation = evidence.counts / (evidence.counts + 0.5 + 0.5 * length)  # the first passages say most
    text = shares @ (evidence.fits * (0.5 + 0.5 * saturation))
    title = shares @ (evidence.fits * evidence.titled)
    near = (shares @ evidence.fits) * (_TOGETHER * evidence.together + _PHRASE * evidence.phrase)
    relevance = _TEXT * text + _TITLE * title + near
    written = evidence.fits[telling] == 1.0
    partly = np.where(written.any(axis=0), _WRITTEN + (_WHOLE - _WRITTEN) * relevance, _WRITTEN * relevance)
    scored: Table = np.where(written.all(axis=0), _WHOLE + (1 - _WHOLE) * relevance, partly)
    return scored
