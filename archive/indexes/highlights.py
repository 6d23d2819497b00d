"""The places of a text that show why it was found: at most three, as text that is safe inside HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pointsman.archive.indexes.query import IndexQuery

MOST = 3
_AROUND_CHARS = 60
_LOOKED_AT = 500  # matches; later ones show nothing new
_SPACE = re.compile(r"\s+")


def highlights(content: str, query: IndexQuery, case_sensitive: bool) -> list[str]:
    """In the order of the text. Where no word can be pointed at, the beginning."""
    windows = _windows(content, _pattern(query, case_sensitive))
    best = sorted(windows, key=lambda window: (-len(window.words), window.start))[:MOST]
    chosen = sorted(best, key=lambda window: window.start) or [_Window(0, 2 * _AROUND_CHARS)]
    return [_shown(content, window) for window in chosen]


@dataclass(slots=True)
class _Window:
    start: int
    end: int
    words: set[str] = field(default_factory=set)


def _pattern(query: IndexQuery, case_sensitive: bool) -> re.Pattern[str]:
    """Phrases before words, so that a phrase is one place."""
    sought: Iterable[str] = (
        *(r"\W+".join(re.escape(word) or r"\w+" for word in phrase) for phrase in query.phrases),
        *sorted(map(re.escape, query.scored), key=len, reverse=True),
    )
    return re.compile(rf"(?<!\w)(?:{'|'.join(sought)})(?!\w)", 0 if case_sensitive else re.IGNORECASE)


def _windows(content: str, pattern: re.Pattern[str]) -> list[_Window]:
    windows: list[_Window] = []
    for count, match in enumerate(pattern.finditer(content)):
        if count >= _LOOKED_AT:
            break
        if not windows or match.end() > windows[-1].end:
            windows.append(_Window(max(0, match.start() - _AROUND_CHARS), match.end() + _AROUND_CHARS))
        windows[-1].words.add(match[0].lower())
    return windows


def _shown(content: str, window: _Window) -> str:
    """Cut at whole words where there are any, in one line."""
    start, end = window.start, min(window.end, len(content))
    cut = content[start:end]
    if start > 0:
        cut = cut[_first_gap(cut) :]
    if end < len(content):
        cut = cut[: len(cut) - _first_gap(cut[::-1])]
    text = html.escape(_SPACE.sub(" ", cut).strip(), quote=False)
    return f"{'...' if start > 0 else ''}{text}{'...' if end < len(content) else ''}"


def _first_gap(text: str) -> int:
    """Where the first space within the margin ends; 0 where there is none."""
    gap = re.search(r"\s", text[: _AROUND_CHARS // 2])
    return gap.end() if gap else 0
