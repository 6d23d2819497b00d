"""Excerpts of a text with the words of a query highlighted, as SQLite's FTS5 cuts them. Independent of the engine."""

from __future__ import annotations

import html
import re
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pointsman.archive.text.tokenizer import Span, spans, tokenize
from pointsman.archive.text.words import spellings

WORDS = 32  # of an excerpt
MOST_TEXTS = 512  # highlighted
_LEAD, _LONGEST = 200, 300  # characters that are shown before the first mark and from there on
_NEW, _AGAIN = 1_000, 1  # what a phrase is worth in an excerpt, the first time and later
_TEXT_START, _SENTENCE_START = 120, 100  # what it is worth that an excerpt starts there
_OPEN, _CLOSE = (f"\x01{secrets.token_hex(4)}{sign}" for sign in "()")  # random, so that no text contains them
_TAGS = {_OPEN: "<mark>", _CLOSE: "</mark>"}
_SIGN = re.compile(f"({re.escape(_OPEN)}|{re.escape(_CLOSE)})")


class _Match(NamedTuple):
    start: int  # in words
    phrase: int
    end: int  # not included


def highlight(text: str, wanted: Sequence[str]) -> str | None:
    """A short text as HTML, with the words and phrases in `<mark>`; None if it has none of them."""
    words = spans(text)
    marks = _joined(_matches(words, wanted))
    return _html(_marked(text, words, marks, 0, len(text))) if marks else None


def excerpt(text: str, wanted: Sequence[str]) -> str | None:
    """The best WORDS words of a text, likewise: those with the most different phrases, whole sentences preferred."""
    words = spans(text)
    matches = _matches(words, wanted)
    if not matches:
        return None
    first = _best_start(text, words, matches)
    end = first + WORDS
    marks = [(start, min(after, end)) for start, after in _joined(matches) if first <= start < end]
    whole = end >= len(words)
    shown = _marked(text, words, marks, words[first].start if first else 0, len(text) if whole else words[end - 1].end)
    return _html(f"{'…' if first else ''}{shown}{'' if whole else '…'}")


def _matches(words: Sequence[Span], wanted: Sequence[str]) -> list[_Match]:
    """Where the phrases occur, in order."""
    starting: defaultdict[str, list[tuple[int, list[str]]]] = defaultdict(list)
    for number, text in enumerate(wanted[:MOST_TEXTS]):
        for phrase in filter(None, map(tokenize, spellings(text))):
            starting[phrase[0]].append((number, phrase))
    found = []
    for start, span in enumerate(words):
        for number, phrase in starting.get(span.word, ()):
            end = start + len(phrase)
            if [each.word for each in words[start:end]] == phrase:
                found.append(_Match(start, number, end))
    return found


def _joined(matches: Sequence[_Match]) -> list[tuple[int, int]]:
    """Ranges of words to mark: matches that overlap share one."""
    ranges: list[tuple[int, int]] = []
    for start, _, end in matches:
        if ranges and start < ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
        else:
            ranges.append((start, end))
    return ranges


def _best_start(text: str, words: Sequence[Span], matches: Sequence[_Match]) -> int:
    """The word that the excerpt starts with: around matches, or where their sentence starts."""
    sentences = list(_sentence_starts(text, words))
    best, score = 0, 0
    for place, match in enumerate(matches):
        worth, last = _score(matches[place:], match.start)
        if worth > score:
            around = match.start - int((WORDS - (last - match.start)) / 2)
            best, score = max(0, min(around, len(words) - WORDS)), worth
        start = max((each for each in sentences if each <= match.start), default=0)
        if len(words) > WORDS and start < match.start:
            worth = _score(matches, start)[0] + (_SENTENCE_START if start else _TEXT_START)
            if worth > score:
                best, score = start, worth
    return best


def _score(matches: Sequence[_Match], first: int) -> tuple[int, int]:
    """What the excerpt from this word on is worth, and where its last match ends."""
    seen: set[int] = set()
    score, last = 0, first
    for start, phrase, end in matches:
        if start >= first + WORDS:
            break
        if start >= first:
            score += _AGAIN if phrase in seen else _NEW
            seen.add(phrase)
            last = end
    return score, last


def _sentence_starts(text: str, words: Sequence[Span]) -> Iterator[int]:
    for place, span in enumerate(words):
        before = text[max(0, span.start - 64) : span.start]
        if not place or (before.rstrip(" \t\r\n")[-1:] in (".", ":") and before[-1] in " \t\r\n"):
            yield place


def _marked(text: str, words: Sequence[Span], marks: Sequence[tuple[int, int]], start: int, end: int) -> str:
    """A part of the text with signs around the marked words."""
    pieces = []
    for first, after in marks:
        opening, closing = words[first].start, words[after - 1].end
        pieces += [text[start:opening], _OPEN, text[opening:closing], _CLOSE]
        start = closing
    return "".join([*pieces, text[start:end]])


def _html(marked: str) -> str:
    """On one line, from shortly before the first mark on. The text is escaped: marks are the only tags."""
    before, *pieces = _SIGN.split(" ".join(marked.split()))
    if len(before) > _LEAD:
        before = f"…{before[-_LEAD:]}"
    shown, room = [html.escape(before, quote=False)], _LONGEST
    for sign, text in zip(pieces[::2], pieces[1::2], strict=True):
        shown += (_TAGS[sign], html.escape(text[:room], quote=False))
        room -= len(text)
        if room < 0:
            shown.append("…" if sign == _CLOSE else f"…{_TAGS[_CLOSE]}")
            break
    return "".join(shown)
