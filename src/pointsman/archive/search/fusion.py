"""Fuses two rankings: a weighted mean of their scores after min-max normalization."""

from __future__ import annotations

from collections.abc import Mapping

from pointsman.archive.store.base import NOT_NAMED, Named

DEPTH = 100  # of each ranking
STATIC_WEIGHT = 0.4  # of meaning, by measurement: a weak model may support words, not outvote them
REMOTE_WEIGHT = 0.5


def fuse(words: Mapping[int, float], meaning: Mapping[int, float], weight: float) -> dict[int, float]:
    """Best first, from 0 to 1. A number that is missing in a ranking has 0 there."""
    by_words, by_meaning = _min_max(words), _min_max(meaning)
    fused = {
        number: (1 - weight) * by_words.get(number, 0.0) + weight * by_meaning.get(number, 0.0)
        for number in {**by_words, **by_meaning}
    }
    return _sorted(fused)


def lead(ranked: Mapping[int, float], first: Mapping[int, Named]) -> dict[int, float]:
    """Those in `first` before the others, the highest counts first. A score rises to that of the next in rank.

    `ranked`: best first.
    """
    if not first:
        return dict(ranked)
    numbers = sorted(
        {**ranked, **first}, key=lambda number: (first.get(number, NOT_NAMED), ranked.get(number, 0.0), -number)
    )
    best = 0.0
    scores = {}
    for number in numbers:  # the last first
        best = max(best, ranked.get(number, 0.0))
        scores[number] = best
    return dict(reversed(scores.items()))


def normalize(scores: Mapping[int, float]) -> dict[int, float]:
    """One ranking alone: each score divided by the best."""
    best = max(scores.values(), default=0.0)
    return _sorted({number: max(0.0, score / best) if best > 0 else 0.0 for number, score in scores.items()})


def _min_max(scores: Mapping[int, float]) -> dict[int, float]:
    if not scores:
        return {}
    least, most = min(scores.values()), max(scores.values())
    if most == least:
        return dict.fromkeys(scores, 1.0)
    return {number: (score - least) / (most - least) for number, score in scores.items()}


def _sorted(scores: Mapping[int, float]) -> dict[int, float]:
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
