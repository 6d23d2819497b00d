"""Two rankings as one: a weighted mean of their scores, each stretched to 0..1 over its best."""

from __future__ import annotations

from collections.abc import Mapping

DEPTH = 100  # of each ranking
STATIC_WEIGHT = 0.3  # of meaning; by measurement: a weak model may help words, not outvote them
REMOTE_WEIGHT = 0.5


def fuse(words: Mapping[int, float], meaning: Mapping[int, float], weight: float) -> dict[int, float]:
    """Best first, from 0 to 1. Who is missing in a ranking has 0 there."""
    by_words, by_meaning = _stretched(words), _stretched(meaning)
    fused = {
        number: (1 - weight) * by_words.get(number, 0.0) + weight * by_meaning.get(number, 0.0)
        for number in {**by_words, **by_meaning}
    }
    return _sorted(fused)


def alone(scores: Mapping[int, float]) -> dict[int, float]:
    """One ranking by itself: each score beside the best."""
    best = max(scores.values(), default=0.0)
    return _sorted({number: max(0.0, score / best) if best > 0 else 0.0 for number, score in scores.items()})


def _stretched(scores: Mapping[int, float]) -> dict[int, float]:
    if not scores:
        return {}
    least, most = min(scores.values()), max(scores.values())
    if most == least:
        return dict.fromkeys(scores, 1.0)
    return {number: (score - least) / (most - least) for number, score in scores.items()}


def _sorted(scores: Mapping[int, float]) -> dict[int, float]:
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
