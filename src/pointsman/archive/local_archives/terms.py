"""The terms of a query: how rare each is in the archive, and how its spelling may be corrected."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.archive.model.query import Query
from pointsman.archive.store.archives import ArchiveView
from pointsman.archive.text.vocabulary import Guess

COMMON_SHARE = 0.1  # of the passages: a word in more of them is costly and carries little
FEW_PASSAGES = 2_000  # with fewer passages no word is costly
MAX_GUESSES = 5
_RARE = 2  # passages: a word in so few may itself be a typo
_MUCH_MORE_FREQUENT = 20
_FITS = (0.6, 0.45)  # of a correction with one edit, with two
_PIECE = re.compile(r"[^\W_]{2,}")
_MIN_WEIGHT = 0.3  # of a word that every passage has
_FIT_STEP = 0.05  # less for each further guess


@dataclass(frozen=True, slots=True)
class Term:
    text: str
    required: bool
    seen: int  # passages that have it as written
    guesses: tuple[Guess, ...]
    common: bool
    weight: float  # by rarity (idf)

    @property
    def readings(self) -> tuple[tuple[str, float], ...]:
        """The spellings to search for, each with its fit: 1.0 as written, less for a guess."""
        written = ((self.text, 1.0),) if self.seen or not self.guesses else ()
        return written + tuple(
            (guess.word, _FITS[guess.edits - 1] - rank * _FIT_STEP) for rank, guess in enumerate(self.guesses)
        )

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for text, _ in self.readings)


def resolve_terms(view: ArchiveView, query: Query, fuzzy: bool) -> tuple[Term, ...]:
    total = view.passage_count()
    most = max(FEW_PASSAGES, int(total * COMMON_SHARE))
    seen_of = {text: view.count_passages(text, most) for text in (*query.words, *query.must)}
    wanted: dict[str, bool] = {}
    for word in query.words:
        halves = _PIECE.findall(word)
        apart = not seen_of[word] and len(halves) > 1  # without `high-speed` as one word, search for its parts
        wanted.update(dict.fromkeys(halves if apart else [word], False))
    wanted.update(dict.fromkeys(query.must, True))
    terms = []
    for text, required in wanted.items():
        seen = seen_of[text] if text in seen_of else view.count_passages(text, most)
        guesses = _guesses(view, text, seen) if fuzzy and seen <= _RARE else ()
        times = max((seen, *(guess.passages for guess in guesses)))
        weight = _MIN_WEIGHT + math.log(1 + (max(total - times, 0) + 0.5) / (times + 0.5))
        terms.append(Term(text, required, seen, guesses, seen > most, weight))
    return tuple(terms)


def corrected_query(terms: Sequence[Term], query: str) -> str | None:
    """The query with the best guess for each term; None if there are no guesses."""
    corrected = query
    for term in terms:
        if term.guesses:
            corrected = _replace(corrected, term.text, term.guesses[0].word)
    return corrected if corrected != query else None


def _guesses(view: ArchiveView, text: str, seen: int) -> tuple[Guess, ...]:
    guesses = [
        guess for guess in view.vocabulary().nearest(text, MAX_GUESSES) if view.count_passages(guess.word, _RARE)
    ]
    if seen:  # the word exists: accept only much more frequent words at one edit
        guesses = [guess for guess in guesses if guess.edits == 1 and guess.passages >= _MUCH_MORE_FREQUENT * seen]
    return tuple(guesses)


def _replace(query: str, word: str, by: str) -> str:
    start = query.lower().find(word.lower())
    return query if start < 0 else query[:start] + by + query[start + len(word) :]
