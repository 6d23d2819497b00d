"""How much of a query its hits speak of: it scales scores, so that the best hit of a bad lot does not get a high one.

Fused scores only give an order: the best hit of any query has nearly 1. A word that was asked for and is found nowhere
tells most against a hit, so words are weighted by their rarity, and one that no passage has weighs most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pointsman.providers.text import tokens

ENOUGH_WORDS = 5  # of a long query: a hit that has so many of average weight speaks of it
COMMON_WORDS_ONLY = 0.2  # for a query without a word that carries meaning, like "what is the"


class Asked:
    """The words of a query that carry meaning, each with its weight."""

    def __init__(self, texts: Iterable[str], weigh: Callable[[Sequence[str]], Mapping[str, float]]) -> None:
        """`texts`: words and phrases. `weigh`: how much each tells."""
        self._stems = {text: stems for text in texts if (stems := frozenset(tokens(text)))}
        weights = weigh(list(self._stems)) if self._stems else {}
        self._weights = {text: weights[text] for text in self._stems}
        count = len(self._weights)
        self._whole = sum(self._weights.values()) * min(1.0, ENOUGH_WORDS / count) if count else 0.0

    def covered(self, text: str) -> float:
        """The share of the query that a text has, from 0 to 1."""
        if not self._stems:
            return COMMON_WORDS_ONLY
        there = frozenset(tokens(text))
        found = sum(self._weights[asked] * len(stems & there) / len(stems) for asked, stems in self._stems.items())
        return min(1.0, found / self._whole) if self._whole > 0 else 1.0


def scaled(scores: Sequence[float], evidence: Sequence[float]) -> list[float]:
    """Descending scores times their evidence, still descending: each hit takes the best evidence from its rank down."""
    best = 0.0
    found = []
    for score, shown in zip(reversed(scores), reversed(evidence), strict=True):
        best = max(best, shown)
        found.append(score * best)
    return found[::-1]
