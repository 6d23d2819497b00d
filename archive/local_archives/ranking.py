"""How well documents answer a query, from 0 to 1. Pure.

A document that has every word as it was written scores above .5, any other below: what had to be corrected, or lacks a
word, never comes before it. Within each half count how much of each word there is, whether the words stand in the
title, in one passage, and next to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_TEXT, _TITLE, _TOGETHER, _PHRASE = 0.5, 0.2, 0.2, 0.1
_WHOLE = 0.5


@dataclass(slots=True)
class Match:
    """What one document has of the query. Lists go by term, in the order of the query."""

    fits: list[float]  # how well the best reading of each term fits; 0: it is not there
    passages: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # with the terms they have
    titled: set[int] = field(default_factory=set)  # terms that stand in the title


def score(match: Match, weights: Sequence[float], length: float, *, together: bool, phrase: bool, whole: bool) -> float:
    """`length`: passages of the document, where the average is 1. `whole`: it has every term as written."""
    total = sum(weights) or 1.0
    counts = [0] * len(weights)
    for terms in match.passages.values():
        for term in terms:
            counts[term] += 1
    text = title = 0.0
    for term, fit in enumerate(match.fits):
        share = weights[term] / total * fit
        text += share * (0.5 + 0.5 * _saturation(counts[term], length))
        title += share * (term in match.titled)
    fits = sum(fit * weight for fit, weight in zip(match.fits, weights, strict=True)) / total
    relevance = _TEXT * text + _TITLE * title + fits * (_TOGETHER * together + _PHRASE * phrase)
    return _WHOLE + (1 - _WHOLE) * relevance if whole else _WHOLE * relevance


def average(lengths: Mapping[int, int]) -> float:
    return sum(lengths.values()) / len(lengths) if lengths else 1.0


def _saturation(count: int, length: float) -> float:
    """The first passages with a word say most, and more in a short document."""
    return count / (count + 0.5 + 0.5 * length)
