"""Search in one index: which documents fit, how well (TF-IDF), and the places that show it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pointsman.archive.indexes.highlights import highlights
from pointsman.archive.indexes.query import IndexQuery, parse
from pointsman.archive.model.indexes import Entry, Index, IndexView

_SCORE_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Hit:
    entry: Entry
    score: float
    highlights: list[str]

    def as_json(self) -> dict[str, Any]:
        entry = self.entry
        return {
            "doc_id": entry.doc_id,
            "score": self.score,
            "highlights": self.highlights,
            "metadata": entry.metadata,
        }


@dataclass(frozen=True, slots=True)
class Found:
    query: IndexQuery
    hits: list[Hit]
    total: int


def search(index: Index, text: str, k: int) -> Found:
    """The best `k`. Raises StoreError."""
    query = parse(text, index.tokenizer)
    if not query.seeks:
        return Found(query, [], 0)
    with index.view() as view:
        scores = _scores(view, query)
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
        entries = [(view.entry(number), score) for number, score in ranked]
    words, tokenizer = set(query.scored), index.tokenizer
    hits = [
        Hit(entry, round(score, _SCORE_DIGITS), highlights(entry.content, words, tokenizer)) for entry, score in entries
    ]
    return Found(query, hits, len(scores))


def _scores(view: IndexView, query: IndexQuery) -> dict[int, float]:
    """Documents that fit, by number. A word weighs more the fewer documents hold it (idf)."""
    postings = {word: view.postings(word) for word in query.scored}
    fitting = _fitting(view, query, postings)
    scores = dict.fromkeys(fitting, 0.0)
    size = view.size()
    for held in postings.values():
        idf = math.log(1 + size / max(len(held), 1))
        for number in held.keys() & fitting:
            scores[number] += (1 + math.log(held[number])) * idf
    return scores


def _fitting(view: IndexView, query: IndexQuery, postings: dict[str, dict[int, int]]) -> set[int]:
    if query.demanded:
        fitting = set.intersection(*(set(postings[word]) for word in query.demanded))
    else:
        fitting = {number for word in query.terms for number in postings[word]}
    for phrase in query.phrases:
        fitting = {number for number in fitting if view.holds_phrase(number, phrase)}
    for words in query.must_not:
        suspects = fitting.intersection(*(view.postings(word) for word in words))
        fitting -= suspects if len(words) == 1 else {number for number in suspects if view.holds_phrase(number, words)}
    return fitting
