"""All words of an archive in memory, and the nearest ones to a misspelt word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.archive.text.words import fold, is_word

MOST_WORDS = 500_000  # kept; beyond that most "words" are noise
_ONE_EDIT, _TWO_EDITS = 5, 9  # letters from which so many edits are tolerated


@dataclass(frozen=True, slots=True)
class Guess:
    word: str
    edits: int
    passages: int  # that have it


def edits_tolerated(word: str) -> int:
    """How many misspelt letters a word of this length may have."""
    return (len(word) >= _ONE_EDIT) + (len(word) >= _TWO_EDITS)


class Vocabulary:
    """Changed in place. Not thread-safe: the owner holds a lock while changing it."""

    def __init__(self) -> None:
        self._passages: dict[str, int] = {}
        self._by_length: defaultdict[int, list[str]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._passages)

    def set(self, counted: Iterable[tuple[str, int]]) -> None:
        """Set how many passages have each word."""
        for word, passages in counted:
            if word not in self._passages:
                if len(self._passages) >= MOST_WORDS or not passages:
                    continue
                self._by_length[len(word)].append(word)
            self._passages[word] = passages

    def count_passage(self, words: Iterable[str]) -> None:
        """Count a passage with these words, ahead of the housekeeper."""
        self.set((word, self._passages.get(word, 0) + 1) for word in words)

    def passages(self, word: str) -> int:
        return self._passages.get(fold(word), 0)

    def nearest(self, word: str, limit: int = 5) -> list[Guess]:
        """What `word` may be a misspelling of: fewest edits first, then the word that more passages have.

        People seldom get the first letter wrong: an edit there counts double.
        """
        folded = fold(word)
        edits = edits_tolerated(folded)
        if not edits or not is_word(folded):
            return []
        from rapidfuzz.distance import OSA  # at first use: most queries are spelt correctly
        from rapidfuzz.process import extract

        guesses = []
        for length in range(len(folded) - edits, len(folded) + edits + 1):
            known_words = self._by_length.get(length, ())
            for known, distance, _ in extract(folded, known_words, scorer=OSA.distance, score_cutoff=edits, limit=None):
                if distance and (passages := self._passages[known]):
                    guesses.append(Guess(known, int(distance), passages))
        guesses.sort(key=lambda guess: (guess.edits + (guess.word[0] != folded[0]), -guess.passages, guess.word))
        return guesses[:limit]
