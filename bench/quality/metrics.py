"""How good is a list of hits? Every figure is a mean over requests, from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

from bench.quality.sets import Asked

DEPTH = 10


@dataclass(frozen=True, slots=True)
class Figures:
    recall_1: float
    recall_3: float
    recall_5: float
    recall_10: float
    complete_5: float
    ndcg_10: float
    mrr: float


def judge(asked: Asked, hits: Sequence[str]) -> Figures:
    """Each wanted tool counts once, where it or an equal of it is first found."""
    places = found_at(asked, hits[:DEPTH])
    wanted = len(asked.wanted)
    gained = sum(1 / math.log2(place + 2) for place in places)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(wanted, DEPTH)))
    within = {depth: sum(place < depth for place in places) / wanted for depth in (1, 3, 5, DEPTH)}
    return Figures(
        recall_1=within[1],
        recall_3=within[3],
        recall_5=within[5],
        recall_10=within[DEPTH],
        complete_5=float(within[5] == 1),
        ndcg_10=gained / ideal,
        mrr=1 / (places[0] + 1) if places else 0.0,
    )


def found_at(asked: Asked, hits: Sequence[str]) -> list[int]:
    missing = list(asked.wanted)
    places = []
    for place, hit in enumerate(hits):
        found = next((equals for equals in missing if hit in equals), None)
        if found is not None:
            missing.remove(found)
            places.append(place)
    return places


def mean(figures: Iterable[Figures]) -> Figures:
    all_ = list(figures)
    return Figures(*(fmean(getattr(each, field.name) for each in all_) for field in fields(Figures)))


def area_under_curve(right: Sequence[float], wrong: Sequence[float]) -> float:
    """How often a right one has a higher figure than a wrong one; equal figures count half."""
    ordered = sorted([(figure, True) for figure in right] + [(figure, False) for figure in wrong])
    beaten = below = 0.0
    start = 0
    while start < len(ordered):
        end = start
        while end < len(ordered) and ordered[end][0] == ordered[start][0]:
            end += 1
        rights = sum(is_right for _, is_right in ordered[start:end])
        wrongs = end - start - rights
        beaten += rights * (below + wrongs / 2)
        below += wrongs
        start = end
    return beaten / (len(right) * len(wrong))
