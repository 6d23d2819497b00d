"""From evidence to a probability: how likely is it that the best hit is what was asked for?

A logistic function, fitted on public sets of tools and requests: right hits on one side, the best hits for requests
that were made for other catalogs on the other (docs/search.md has the figures).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SMALLEST_KNOWN = 200  # tools: in the smallest catalog of the fit; below it nothing is known about the effect of size
FALL = 3  # how fast those behind the best lose relevance with their share of its score


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the best hit of one query."""

    coverage: float  # share of the query that it has, rare words counting more
    score: float  # of the words that it has, in units of the rarest
    part_score: float  # the same for the sentence that it fits best
    cosine: float | None  # of that sentence's meaning and the tool's; None: not compared
    tools: int  # to choose from: among many, one that seems to fit is found more easily


def relevance(evidence: Evidence) -> float:
    size = math.log(max(evidence.tools, SMALLEST_KNOWN))
    words = evidence.coverage * evidence.score
    if evidence.cosine is None:
        sum_ = -0.60 + 1.49 * words + 0.56 * evidence.part_score - 0.50 * size
    else:
        sum_ = -0.22 + 1.70 * words + 6.50 * evidence.cosine - 0.65 * size
    return 1 / (1 + math.exp(-sum_))
