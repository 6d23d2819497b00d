"""The query language of indexes: words, `+must`, `-not` and `"a phrase"`."""

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
    """What a document must, may and must not contain. An exclusion is a word or a phrase."""

    terms: Words = ()
    must: Words = ()
    must_not: tuple[Words, ...] = ()
    phrases: tuple[Words, ...] = ()

    @property
    def has_words(self) -> bool:
        """False for a query that only excludes."""
        return bool(self.terms or self.must or self.phrases)

    @property
    def scored(self) -> Words:
        """The words that count for the score, without duplicates."""
        return _deduplicate([*self.required, *self.terms])

    @property
    def required(self) -> Words:
        """The words that every match contains, anywhere."""
        return _deduplicate([*self.must, *(word for phrase in self.phrases for word in phrase if word != GAP)])

    def as_json(self) -> dict[str, Any]:
        return {
            "terms": list(self.terms),
            "must": list(self.must),
            "must_not": [_shown(words) for words in self.must_not],
            "phrases": [_shown(words) for words in self.phrases],
        }


def parse(text: str, tokenizer: Tokenizer) -> IndexQuery:
    """Never fails: an unclosed quote extends to the end, and other signs are ignored."""
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
    return IndexQuery(_deduplicate(terms), _deduplicate(must), _deduplicate(must_not), _deduplicate(phrases))


def _trimmed(words: list[str]) -> Words:
    """Strip gaps from both ends."""
    kept = [place for place, word in enumerate(words) if word != GAP]
    return tuple(words[kept[0] : kept[-1] + 1]) if kept else ()


def _shown(words: Words) -> str:
    return " ".join(word or "*" for word in words)


def _deduplicate(found: list[Part]) -> tuple[Part, ...]:
    return tuple(dict.fromkeys(found))
