"""Search in one index: matching documents, scored by TF-IDF, with highlights as text that is safe inside HTML."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pointsman.archive.indexes.query import IndexQuery, parse
from pointsman.archive.model.indexes import WORD, Entry, Index, IndexView, Tokenizer, compose

_SCORE_DIGITS = 4
MAX_HIGHLIGHTS = 3
_AROUND_CHARS = 60
_MAX_CHARS = 200  # if several words are close together
_SCANNED_CHARS = 1_000_000  # of a long text; matches further down are found, but not highlighted
_MAX_MATCHES = 500  # looked at for highlights
_SPACE = re.compile(r"\s+")


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
    """Find the best `k` documents. Raises StoreError."""
    query = parse(text, index.tokenizer)
    if not query.has_words:
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
    """Scores of the matching documents, by number."""
    postings = {word: view.postings(word) for word in query.scored}
    matching = _matching(view, query, postings)
    scores = dict.fromkeys(matching, 0.0)
    size = view.size()
    for counts in postings.values():
        idf = math.log(1 + size / max(len(counts), 1))
        for number in counts.keys() & matching:
            scores[number] += (1 + math.log(counts[number])) * idf
    return scores


def _matching(view: IndexView, query: IndexQuery, postings: dict[str, dict[int, int]]) -> set[int]:
    if query.required:
        matching = set.intersection(*(set(postings[word]) for word in query.required))
    else:
        matching = {number for word in query.terms for number in postings[word]}
    for phrase in query.phrases:
        matching = {number for number in matching if view.holds_phrase(number, phrase)}
    for words in query.must_not:
        suspects = matching.intersection(*(view.postings(word) for word in words))
        matching -= suspects if len(words) == 1 else {number for number in suspects if view.holds_phrase(number, words)}
    return matching


def highlights(content: str, words: Collection[str], tokenizer: Tokenizer) -> list[str]:
    """The windows with the most words, in the order of the text; the beginning of the text if no word is in it."""
    text = compose(content)
    windows = sorted(_windows(text, words, tokenizer), key=lambda window: (-len(window.words), window.start))
    chosen = sorted(windows[:MAX_HIGHLIGHTS], key=lambda window: window.start) or [_Window(0, 2 * _AROUND_CHARS)]
    return [_shown(text, window) for window in chosen]


@dataclass(slots=True)
class _Window:
    start: int
    end: int
    words: set[str] = field(default_factory=set)


def _windows(text: str, words: Collection[str], tokenizer: Tokenizer) -> list[_Window]:
    windows: list[_Window] = []
    matches = 0
    for match in WORD.finditer(text, 0, _SCANNED_CHARS):
        word = tokenizer.fold(match[0])
        if word not in words:
            continue
        end = match.end() + _AROUND_CHARS
        if not windows or match.end() > windows[-1].end:
            windows.append(_Window(max(0, match.start() - _AROUND_CHARS), end))
        windows[-1].end = max(windows[-1].end, min(end, windows[-1].start + _MAX_CHARS))
        windows[-1].words.add(word)
        matches += 1
        if matches == _MAX_MATCHES:
            break
    return windows


def _shown(content: str, window: _Window) -> str:
    """Cut at word boundaries where possible, on one line."""
    start, end = window.start, min(window.end, len(content))
    cut = content[start:end]
    if start > 0:
        cut = cut[_first_gap(cut) :]
    if end < len(content):
        cut = cut[: len(cut) - _first_gap(cut[::-1])]
    text = html.escape(_SPACE.sub(" ", cut).strip(), quote=False)
    return f"{'...' if start > 0 else ''}{text}{'...' if end < len(content) else ''}"


def _first_gap(text: str) -> int:
    """The end of the first space within the margin; 0 if there is none."""
    gap = re.search(r"\s", text[: _AROUND_CHARS // 2])
    return gap.end() if gap else 0
