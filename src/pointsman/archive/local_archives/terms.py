"""The words of a query as the archive knows them: how rare they are, and what they may have been meant to be."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.archive.model.query import Query
from pointsman.archive.store.archives import ArchiveView
from pointsman.archive.text.vocabulary import Guess

COMMON_SHARE = 0.1  # of the passages: a word in more of them tells little and costs much
FEW_PASSAGES = 2_000  # among so few no word costs anything
MOST_GUESSES = 5
_RARE = 2  # passages: a word that so few have may itself be a slip
_MUCH_COMMONER = 20
_WEIGHTS = (0.6, 0.45)  # of a word with one slip, with two
_PIECE = re.compile(r"[^\W_]{2,}")
_LEAST_WEIGHT = 0.3  # of a word that is everywhere
_LESS_EACH = 0.05  # each further guess


@dataclass(frozen=True, slots=True)
class Term:
    text: str
    required: bool
    seen: int  # passages that have it as written
    guesses: tuple[Guess, ...]
    common: bool
    weight: float  # how much it tells

    @property
    def readings(self) -> tuple[tuple[str, float], ...]:
        """What it is looked for as, and how well that fits: 1.0 as written, less for a guess."""
        written = ((self.text, 1.0),) if self.seen or not self.guesses else ()
        return written + tuple(
            (guess.word, _WEIGHTS[guess.edits - 1] - place * _LESS_EACH) for place, guess in enumerate(self.guesses)
        )

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for text, _ in self.readings)


def terms_of(view: ArchiveView, query: Query, fuzzy: bool) -> tuple[Term, ...]:
    total = view.passage_count()
    most = max(FEW_PASSAGES, int(total * COMMON_SHARE))
    seen_of = {text: view.count_passages(text, most) for text in (*query.words, *query.must)}
    wanted: dict[str, bool] = {}
    for word in query.words:
        halves = _PIECE.findall(word)
        apart = not seen_of[word] and len(halves) > 1  # `high-speed` as one is best, either half better than nothing
        wanted.update(dict.fromkeys(halves if apart else [word], False))
    wanted.update(dict.fromkeys(query.must, True))
    terms = []
    for text, required in wanted.items():
        seen = seen_of[text] if text in seen_of else view.count_passages(text, most)
        guesses = _guesses(view, text, seen) if fuzzy and seen <= _RARE else ()
        times = max((seen, *(guess.passages for guess in guesses)))
        weight = _LEAST_WEIGHT + math.log(1 + (max(total - times, 0) + 0.5) / (times + 0.5))
        terms.append(Term(text, required, seen, guesses, seen > most, weight))
    return tuple(terms)


def said_instead(terms: Sequence[Term], query: str) -> str | None:
    """The query with the likeliest guesses in it; None where nothing was guessed."""
    better = query
    for term in terms:
        if term.guesses:
            better = _replaced(better, term.text, term.guesses[0].word)
    return better if better != query else None


def _guesses(view: ArchiveView, text: str, seen: int) -> tuple[Guess, ...]:
    guesses = [
        guess for guess in view.vocabulary().nearest(text, MOST_GUESSES) if view.count_passages(guess.word, _RARE)
    ]
    if seen:  # it exists: only what is a slip away and far more usual may have been meant as well
        guesses = [guess for guess in guesses if guess.edits == 1 and guess.passages >= _MUCH_COMMONER * seen]
    return tuple(guesses)


def _replaced(query: str, word: str, by: str) -> str:
    start = query.lower().find(word.lower())
    return query if start < 0 else query[:start] + by + query[start + len(word) :]
