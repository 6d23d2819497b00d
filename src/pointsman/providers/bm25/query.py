"""What is asked for, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.providers.text import STOP_WORDS, calm, has_cjk, sentences, stem, without_cjk, words

MAX_CHARS = 8_000  # as many as a discovery takes
MAX_PARTS = 12
MAX_WORDS = 2_000  # different ones, of all texts of a request together: each costs a stemming and a look-up
PAIR_LENGTH = 0.5  # in words, of two characters of CJK text: every other pair straddles two words


@dataclass(frozen=True, slots=True)
class Query:
    """A text and its sentences: who asks for several things at once puts one into each."""

    said: dict[str, str]  # each token once, with the word that it came from
    texts: tuple[str, ...]  # its sentences
    parts: tuple[frozenset[str], ...]  # their tokens
    length: float  # in words
    meant: tuple[str, ...]  # its sentences as they are embedded; empty: left to the words


def parse_all(texts: Sequence[str]) -> list[Query]:
    """Each with its share of the words that a request may have; what one leaves over goes to those after it."""
    parsed: list[Query] = []
    room = MAX_WORDS
    for place, text in enumerate(texts):
        parsed.append(parse(text, room // (len(texts) - place)))
        room -= len(parsed[-1].said)
    return parsed


def parse(text: str, room: int = MAX_WORDS) -> Query:
    """Reads as far as there is room for another word."""
    text = text[:MAX_CHARS]
    pieces = sentences(text)
    pieces[MAX_PARTS - 1 :] = [" ".join(pieces[MAX_PARTS - 1 :])]  # whatever is left is one more part
    said: dict[str, str] = {}
    parts: list[frozenset[str]] = []
    texts: list[str] = []
    for piece in pieces:
        part = set()
        for word in words(piece):
            if len(said) >= room:
                break
            if word not in STOP_WORDS:
                token = stem(word)
                said.setdefault(token, word)
                part.add(token)
        if part:
            parts.append(frozenset(part))
            texts.append(piece)
    length = sum(PAIR_LENGTH if has_cjk(token) else 1 for token in said)
    return Query(said, tuple(texts), tuple(parts), length, _meant(texts))


def _meant(texts: Sequence[str]) -> tuple[str, ...]:
    """What the model knows too little of is left out; where that is most of the text, all of it."""
    whole = [calm(text) for text in texts]
    return tuple(map(without_cjk, whole)) if without_cjk(" ".join(whole)) else ()
