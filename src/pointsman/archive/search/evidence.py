"""How much of a query each hit covers. Scales scores, so that the best of poor hits does not get a high score.

Fused scores only give an order: the best hit of any query has nearly 1. Words are weighted by their rarity, and a word
that no passage has weighs most: a hit without it is the least likely answer. An identifier that no hit has as a whole
is hardly covered by its parts: `DEC-0055` does not answer `DEC-0099`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from pointsman.archive.text.words import is_identifier, spellings
from pointsman.providers.text import beginnings, tokens

ENOUGH_WORDS = 5  # of a long query: a hit with so many of average weight covers it
MAX_IDENTIFIERS = 8  # that are looked for as a whole
_MAX_PARTS = 8  # of each
_KEPT_CHARS = 64  # of what is cached
_KEPT_WORDS = 65_536
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")  # of an identifier
_PUNCTUATION = '.,;:!?()"'
PARTS_ONLY = 0.1  # of the weight of an identifier's parts remains if no hit has it as a whole
COMMON_WORDS_ONLY = 0.2  # for a query without a word that carries meaning, like "what is the"


class WeightedQuery:
    """The words of a query that carry meaning, each with its weight."""

    def __init__(self, texts: Iterable[str], weigh: Callable[[Sequence[str]], Mapping[str, float]]) -> None:
        """`texts`: words and phrases. `weigh`: their weights."""
        self._stems = {text: stems for text in texts if (stems := frozenset(tokens(spellings(text)[0])))}
        self._beginnings = frozenset(
            beginning for stems in self._stems.values() for stem in stems for beginning in beginnings(stem)
        )
        identifiers = [text for text in self._stems if is_identifier(text)][:MAX_IDENTIFIERS]
        self._identifiers = {text: _as_a_whole(text) for text in identifiers}
        weights = weigh(list(self._stems)) if self._stems else {}
        self._weights = {text: weights[text] for text in self._stems}
        count = len(self._weights)
        self._full_weight = sum(self._weights.values()) * min(1.0, ENOUGH_WORDS / count) if count else 0.0

    def evidence(self, hits: Sequence[tuple[str, float]]) -> list[float]:
        """For each hit, its text and how well it matches by meaning: the share of the query that it covers, 0 to 1."""
        if not self._stems:
            return [max(COMMON_WORDS_ONLY, meaning) for _, meaning in hits]
        missing = self._missing([text for text, _ in hits])
        known = 1 - self._share(missing)
        return [max(self._coverage(text, missing), meaning * known) for text, meaning in hits]

    def known(self, texts: Sequence[str]) -> float:
        """The share of the query without the identifiers that none of the texts has as a whole, PARTS_ONLY to 1."""
        return max(PARTS_ONLY, 1 - self._share(self._missing(texts)))

    def _coverage(self, text: str, missing: set[str]) -> float:
        present, lowered = stems_in(text, self._beginnings), text.lower()
        found = sum(
            self._weights[word]
            * (len(stems & present) / len(stems) or _has_in_other_case(lowered, word))
            * (PARTS_ONLY if word in missing else 1)
            for word, stems in self._stems.items()
        )
        return min(1.0, found / self._full_weight) if self._full_weight > 0 else 1.0

    def _missing(self, texts: Sequence[str]) -> set[str]:
        """The identifiers of the query that none of the texts has as a whole."""
        if not self._identifiers:
            return set()
        lowered = [text.lower() for text in texts]
        return {word for word, pattern in self._identifiers.items() if not any(map(pattern.search, lowered))}

    def _share(self, words: Iterable[str]) -> float:
        """Of the weight of all words."""
        total = sum(self._weights.values())
        return sum(self._weights[word] for word in words) / total if total > 0 else 0.0


def _has_in_other_case(lowered: str, word: str) -> bool:
    """Whether a text in lower case has a word that is none of its words: `getuserbyid` in that of `getUserById`."""
    return word.isascii() and word.isalpha() and word in lowered and bool(_as_a_whole(word).search(lowered))


@lru_cache(maxsize=256)
def _as_a_whole(identifier: str) -> re.Pattern[str]:
    """Finds an identifier in text in lower case, however its parts are joined: `err_7`, `ERR-7`, `Err 7`."""
    if len(spellings(identifier)) > 1:
        return _version(spellings(identifier)[0])
    first, *others = [re.escape(part.lower()) for part in _PART.findall(identifier)] or [re.escape(identifier.lower())]
    others = others[: _MAX_PARTS - 1]
    # Begins with the text itself, which is searched much faster than what must not come before it.
    joined = r"[\W_]{0,2}".join((rf"{first}(?<![^\W_]{first})", *others))
    return re.compile(rf"{joined}(?![^\W_])")


def _version(number: str) -> re.Pattern[str]:
    """Finds a version number with and without its `v`."""
    return re.compile(rf"(?<![^\W_])v?{re.escape(number.lower())}(?![^\W_])")


def stems_in(text: str, beginning: frozenset[str]) -> set[str]:
    """The stems of a text, computed once for what stands between blanks: passages repeat words and names.

    Plain words that begin otherwise (`beginning`: see `beginnings`) are left out: stemming is most of the work.
    """
    first = {each[:1] for each in beginning} | {_ANY}
    wanted = tuple(beginning)
    found: set[str] = set()
    for written in [each for each in set(text.split()) if _first_letters[each] in first]:
        if len(written) > _KEPT_CHARS:
            found.update(tokens(written))
        elif _first_letters[written] == _ANY or _plain(written).startswith(wanted):
            found |= _known_stems(written)
    return found


class _FirstLetters(dict[str, str]):
    """The first letter of what stands between blanks, if it is a plain word: one stem; else `_ANY`."""

    def __missing__(self, written: str) -> str:
        word = _plain(written)
        if len(written) > _KEPT_CHARS or not (word.isalpha() and word.isascii() and word.islower()):
            return _ANY
        if len(self) >= _KEPT_WORDS:
            self.clear()
        return self.setdefault(written, word[:1])


def _plain(written: str) -> str:
    word = written.strip(_PUNCTUATION)
    return word[:1].lower() + word[1:]


_ANY = ""
_first_letters = _FirstLetters()


@lru_cache(maxsize=32_768)
def _known_stems(written: str) -> frozenset[str]:
    return frozenset(tokens(written))


def scale(scores: Sequence[float], evidence: Sequence[float]) -> list[float]:
    """Multiply scores by evidence. To keep their descending order, a hit takes the best evidence from its rank down."""
    best = 0.0
    scaled = []
    for score, each in zip(reversed(scores), reversed(evidence), strict=True):
        best = max(best, each)
        scaled.append(score * best)
    return scaled[::-1]
