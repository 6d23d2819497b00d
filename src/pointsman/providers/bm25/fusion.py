"""Several intents, one list: fuse what each of them found, and let none go unheard."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointsman.providers.bm25.postings import Floats

ALL_WEIGHT = 0.2  # of the sum over all queries, beside the best of them
CONTEXT_WEIGHT = 0.3
SERVES = 0.5  # of the best hit's relevance for an intent, to serve it too
FITS = 0.2  # the relevance from which a tool can be said to serve an intent at all


@dataclass(frozen=True, slots=True)
class Fused:
    row: int
    relevance: float
    intents: tuple[int, ...]


def fuse(
    fits: Sequence[Floats], context: Floats, max_results: int, first: Collection[int] = frozenset()
) -> list[Fused]:
    """Best first: what fits one query best, then a little for what fits the others too and the context.

    The rows in `first` come before all others.
    """
    aside = CONTEXT_WEIGHT * context
    by_query = np.array(fits) if fits else np.zeros((1, len(context)))
    best = by_query.max(axis=0)
    scores = best + ALL_WEIGHT * by_query.sum(axis=0) + aside
    if first:
        scores[list(first)] += scores.max()
    relevance = np.maximum(best, aside)
    return [Fused(row, float(relevance[row]), _served(by_query, row)) for row in _chosen(scores, by_query, max_results)]


def _chosen(scores: Floats, by_query: Floats, max_results: int) -> list[int]:
    """The best hit for each query, as many as there is room for, and then the best of all the others."""
    tops = {int(fit.argmax()): float(fit.max()) for fit in by_query if fit.any()}
    must = sorted(tops, key=lambda row: -tops[row])[:max_results]
    chosen = dict.fromkeys([*must, *_best(scores, max_results)])
    return sorted(list(chosen)[:max_results], key=lambda row: (-scores[row], row))


def _best(scores: Floats, most: int) -> list[int]:
    """Sorts only what can be among them; of equals the first."""
    found: NDArray[np.intp] = scores.nonzero()[0]
    if len(found) > most:
        least = np.partition(scores[found], len(found) - most)[len(found) - most]
        found = found[scores[found] >= least]
    best: list[int] = found[np.argsort(-scores[found], kind="stable")][:most].tolist()
    return best


def _served(by_query: Floats, row: int) -> tuple[int, ...]:
    """The intents that it fits, and nearly as well as the best does.

    A tool that fits none of them may still be the best that there is for one: then it stands for that.
    """
    fits, tops = by_query[:, row], by_query.max(axis=1)
    serves = (fits >= FITS) & (fits >= np.minimum(SERVES * tops, fits.max()))
    if not serves.any():
        serves = (fits > 0) & (by_query.argmax(axis=1) == row)
    return tuple(serves.nonzero()[0].tolist())
