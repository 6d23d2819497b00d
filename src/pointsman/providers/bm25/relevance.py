"""The relevance of the best hit: the probability that it is what was asked for.

A logistic function, fitted on public sets of tools and requests, as a whole and on small catalogs drawn from them, with
right hits on one side and the best hits for requests that were made for other catalogs on the other (figures:
docs/concepts/search.md, fit: bench/quality/calibrate.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Where the fitted sets end: a smaller catalog and a shorter request count as these.
SMALLEST = 200  # tools
LEAST_MISSING = 6  # words
MOST = 0.98  # less than an exact name has

# Coefficients of the fit: the intercept with the logarithm of `calibrate.PRIOR`, then one for each of `features`.
WORDS_ALONE = (2.98, -0.99, 1.75, 0.63, 0.05, 0.95, -0.13, 0.63, -0.55, -0.23)
WITH_MEANING = (1.17, -1.04, 0.62, 0.59, 0.04, 0.58, -0.13, 0.7, -1.41, -0.13, 3.7, 2.91)
WITH_SENTENCES = (1.28, -1.08, 0.21, 0.53, 0.04, 0.53, -0.14, 0.68, -2.62, -0.09, 0.51, 2.8, 6.82)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for the best hit of one query. Scores and worths are in units of the rarest word."""

    score: float  # by words
    part_score: float  # the same for the part of the query that matches best
    plain: float  # the share of the query's words that it has, without names and numbers
    part_plain: float  # the same for that part
    names: float  # the share of the names in the query that it has; rare ones count more
    missing: float  # the worth of the query's words that it lacks
    echoed: float  # the share of the tool's own words that the query has; rare ones count more
    described: float  # the worth of the words that its description has, and its names have not
    cosine: float | None  # between a part of the query and the tool, the best; None: not compared
    lead: float | None  # that cosine relative to the best of any tool for that part
    sentence: float | None  # the same cosine by the sentence encoder
    tools: int  # in the index: among many, a seeming match is more likely by chance


def relevance(evidence: Evidence) -> float:
    figures = features(evidence)
    weights = next(each for each in (WORDS_ALONE, WITH_MEANING, WITH_SENTENCES) if len(each) == 1 + len(figures))
    sum_ = weights[0] + sum(weight * figure for weight, figure in zip(weights[1:], figures, strict=True))
    return MOST / (1 + math.exp(-sum_))


def features(evidence: Evidence) -> tuple[float, ...]:
    """The variables of the fit."""
    size = math.log(max(evidence.tools, SMALLEST))
    figures = (
        size,
        math.log1p(evidence.part_score),
        evidence.plain * evidence.score,
        size * evidence.part_plain * evidence.part_score,
        evidence.names,
        max(evidence.missing, LEAST_MISSING),
        evidence.echoed * evidence.score,
        math.sqrt(evidence.echoed),  # a tool of few words is easily echoed
        evidence.described,
    )
    more = evidence.cosine, evidence.lead, evidence.sentence
    return (*figures, *[figure for figure in more if figure is not None])
