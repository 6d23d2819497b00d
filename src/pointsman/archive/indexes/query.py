"""The query language of indexes: `+must`, `-not` and `"a phrase"`, nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

from pointsman.archive.model.indexes import GAP, Tokenizer

_PART = re.compile(r'(?P<sign>[+-]?)(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')

Words = tuple[str, ...]
Part = TypeVar("Part", str, Words)


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What a document must hold, may hold and must not hold. What is excluded is a word or a phrase."""

    terms: Words = ()
    must: Words = ()
    must_not: tuple[Words, ...] = ()
    phrases: tuple[Words, ...] = ()

    @property
    def seeks(self) -> bool:
        """Whether it looks for anything: leaving out is no search."""
        return bool(self.terms or self.must or self.phrases)

    @property
    def scored(self) -> Words:
        """The words that make one document better than another, each once."""
        return _once([*self.demanded, *self.terms])

    @property
    def demanded(self) -> Words:
        """The words that have to be there, wherever they stand."""
        return _once([*self.must, *(word for phrase in self.phrases for word in phrase if word != GAP)])

    def as_json(self) -> dict[str, Any]:
        return {
            "terms": list(self.terms),
            "must": list(self.must),
            "must_not": [_shown(words) for words in self.must_not],
            "phrases": [_shown(words) for words in self.phrases],
        }


def parse(text: str, tokenizer: Tokenizer) -> IndexQuery:
    """Never fails: a quote that is not closed reaches to the end, and other signs are no words."""
    terms: list[str] = []
    must: list[str] = []
    must_not: list[Words] = []
    phrases: list[Words] = []
    for part in _PART.finditer(text):
        words = _trimmed(tokenizer(part["phrase"] or part["word"] or ""))
        if not words:
            continue
        if part["sign"] == "-":
            must_not.append(words)
        elif part["phrase"] is not None and len(words) > 1:
            phrases.append(words)
        elif part["phrase"] is not None or part["sign"] == "+":
            must += filter(None, words)
        else:
            terms += filter(None, words)
    return IndexQuery(_once(terms), _once(must), _once(must_not), _once(phrases))


def _trimmed(words: list[str]) -> Words:
    """Without gaps at the ends: they say nothing."""
    kept = [place for place, word in enumerate(words) if word != GAP]
    return tuple(words[kept[0] : kept[-1] + 1]) if kept else ()


def _shown(words: Words) -> str:
    return " ".join(word or "*" for word in words)


def _once(found: list[Part]) -> tuple[Part, ...]:
    return tuple(dict.fromkeys(found))
