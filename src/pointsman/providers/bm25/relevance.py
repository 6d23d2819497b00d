"""From evidence to a probability: how likely is it that the best hit is what was asked for?

A logistic function, fitted on public sets of tools and requests: right hits on one side, the best hits for requests
that were made for other catalogs on the other (figures: docs/concepts/search.md, fit: bench/quality/calibrate.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# The fit knows no smaller catalogs and hardly any shorter requests; what it says about size ends there.
SMALLEST = 200  # tools
SHORTEST = 8  # words
FALL = 3  # how fast those behind the best lose relevance with their share of its score

WORDS_ALONE = (1.83, 1.04, 0.83, -0.54, -1.26)
WITH_MEANING = (2.36, 0.86, 0.58, -0.72, -1.39, 5.48)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the best hit of one query."""

    coverage: float  # share of the query that it has, rare words counting more
    score: float  # of the words that it has, in units of the rarest
    part_score: float  # the same for the sentence that it fits best
    cosine: float | None  # of that sentence's meaning and the tool's; None: not compared
    words: float  # in the query
    tools: int  # to choose from: among many, one that seems to fit is found more easily


def relevance(evidence: Evidence) -> float:
    weights = WORDS_ALONE if evidence.cosine is None else WITH_MEANING
    sum_ = weights[0] + sum(weight * figure for weight, figure in zip(weights[1:], features(evidence), strict=True))
    return 1 / (1 + math.exp(-sum_))


def features(evidence: Evidence) -> tuple[float, ...]:
    """What the weights after the first belong to."""
    size = math.log(max(evidence.tools, SMALLEST))
    length = math.log1p(max(evidence.words, SHORTEST))
    figures = (evidence.coverage * evidence.score, evidence.part_score, size, length)
    return figures if evidence.cosine is None else (*figures, evidence.cosine)
