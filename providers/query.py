"""What is asked for, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.providers.text import STOP_WORDS, calm, has_cjk, sentences, stem, without_cjk, words

MAX_CHARS = 8_000  # as many as a discovery takes
MAX_PARTS = 12
PAIR_LENGTH = 0.5  # in words, of two characters of CJK text: every other pair straddles two words


@dataclass(frozen=True, slots=True)
class Query:
    """A text and its sentences: who asks for several things at once puts one into each."""

    said: dict[str, str]  # each token once, with the word that it came from
    texts: tuple[str, ...]  # its sentences
    parts: tuple[frozenset[str], ...]  # their tokens
    length: float  # in words
    meant: tuple[str, ...]  # its sentences as they are embedded; empty: left to the words


def parse(text: str) -> Query:
    text = text[:MAX_CHARS]
    pieces = sentences(text)
    pieces[MAX_PARTS - 1 :] = [" ".join(pieces[MAX_PARTS - 1 :])]  # whatever is left is one more part
    said: dict[str, str] = {}
    parts: list[frozenset[str]] = []
    texts: list[str] = []
    for piece in pieces:
        asked = [(stem(word), word) for word in words(piece) if word not in STOP_WORDS]
        if not asked:
            continue
        for token, word in asked:
            said.setdefault(token, word)
        parts.append(frozenset(token for token, _ in asked))
        texts.append(piece)
    length = sum(PAIR_LENGTH if has_cjk(token) else 1 for token in said)
    return Query(said, tuple(texts), tuple(parts), length, _meant(texts))


def _meant(texts: Sequence[str]) -> tuple[str, ...]:
    """What the model knows too little of is left out; where that is most of the text, all of it."""
    whole = [calm(text) for text in texts]
    return tuple(map(without_cjk, whole)) if without_cjk(" ".join(whole)) else ()
