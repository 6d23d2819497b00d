"""The relevance of the best hit: the probability that it is what was asked for.

A logistic function, fitted on public sets of tools and requests, as a whole and on small catalogs drawn from them, with
right hits on one side and the best hits for requests that were made for other catalogs on the other (figures:
docs/concepts/search.md, fit: bench/quality/calibrate.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Where the fitted sets end: a smaller catalog and a shorter request count as these.
SMALLEST = 200  # tools
LEAST_MISSING = 6  # words
MOST = 0.98  # less than an exact name has
UNSURE = 0.3  # at most, for what words alone or a verb alone speaks; the catalog calls this doubtful

# Coefficients of the fit: the intercept with the logarithm of `calibrate.PRIOR`, then one for each of `features`.
WORDS_ALONE = (2.98, -0.99, 1.75, 0.63, 0.05, 0.95, -0.13, 0.63, -0.55, -0.23)
WITH_MEANING = (1.367, -1.034, 0.717, 0.415, 0.043, 0.812, -0.122, 0.711, -1.357, -0.107, -0.421, 2.994, 2.367, 1.648)
# fmt: off
WITH_SENTENCES = (
    1.044, -1.046, 0.296, 0.413, 0.042, 0.668, -0.13, 0.675, -2.4, -0.072, -0.268, 0.122, 2.572, 0.929, 6.711,
)
# fmt: on


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
    acted: float | None  # the score of the verbs that begin its parts, times the share of the other words that it lacks
    cosine: float | None  # between a part of the query and the tool, the best; None: not compared
    lead: float | None  # that cosine relative to the best of any tool for that part
    object_cosine: float | None  # between the query's plain words without those verbs and the tool
    sentence: float | None  # between a part of the query and the tool by the sentence encoder, the best
    tools: int  # in the index: among many, a seeming match is more likely by chance
    other_removed: bool = False  # the request is to remove something that the tool, which removes, does not name
    done_already: bool = False  # the request asks who or what did the thing that the tool does


def relevance(evidence: Evidence) -> float:
    figures = features(evidence)
    weights = next(each for each in (WORDS_ALONE, WITH_MEANING, WITH_SENTENCES) if len(each) == 1 + len(figures))
    found = at_least_by_words(chance(weights, figures), figures)
    return min(found, UNSURE) if evidence.other_removed or evidence.done_already else found


def at_least_by_words(by_all: float, figures: Sequence[float]) -> float:
    """Limit how far meaning lowers a hit by words.

    A request about a subject (`did I save an article about batteries`) has another meaning than any tool.
    """
    return max(by_all, min(chance(WORDS_ALONE, figures[: len(WORDS_ALONE) - 1]), UNSURE))


def chance(weights: Sequence[float], figures: Sequence[float]) -> float:
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
    acted = None if evidence.acted is None else math.log1p(evidence.acted)  # many tools delete something
    more = acted, evidence.cosine, evidence.lead, evidence.object_cosine, evidence.sentence
    return (*figures, *[figure for figure in more if figure is not None])
