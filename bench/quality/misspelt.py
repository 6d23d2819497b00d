"""Misspelt requests: one slip in half of the words, the same ones each time."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from bench.quality.sets import Asked

_WORD = re.compile(r"[A-Za-z]{4,}")  # shorter words are rarely misspelt
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspelt(asked: Asked) -> Asked:
    """The request with slips; a request is its own seed, so it does not depend on the others."""
    choose = random.Random(asked.query)

    def slip(word: re.Match[str]) -> str:
        return _slip(word[0], choose) if choose.random() < 0.5 else word[0]

    return replace(asked, query=_WORD.sub(slip, asked.query))


def _slip(word: str, choose: random.Random) -> str:
    """One letter left out, doubled, replaced, or swapped with the next. The first letter stays, as it mostly does."""
    at = choose.randrange(1, len(word))
    match choose.randrange(4):
        case 0:
            return word[:at] + word[at + 1 :]
        case 1:
            return word[: at + 1] + word[at:]
        case 2:
            return word[:at] + choose.choice(_LETTERS) + word[at + 1 :]
        case _:
            at = min(at, len(word) - 2)
            return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
