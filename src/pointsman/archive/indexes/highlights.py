"""The places of a text that show why it was found: at most three, as text that is safe inside HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from pointsman.archive.model.indexes import WORD, Tokenizer, compose

MOST = 3
_AROUND_CHARS = 60
_LONGEST_CHARS = 200  # where several words stand close together
_SCANNED_CHARS = 1_000_000  # of a long text: what stands further down is found, but not shown
_LOOKED_AT = 500  # matches; later ones show nothing new
_SPACE = re.compile(r"\s+")


def highlights(content: str, words: Collection[str], tokenizer: Tokenizer) -> list[str]:
    """In the order of the text; places with several of the words first choice. Where there are none, the beginning."""
    text = compose(content)
    best = sorted(_windows(text, words, tokenizer), key=lambda window: (-len(window.words), window.start))[:MOST]
    chosen = sorted(best, key=lambda window: window.start) or [_Window(0, 2 * _AROUND_CHARS)]
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
        windows[-1].end = max(windows[-1].end, min(end, windows[-1].start + _LONGEST_CHARS))
        windows[-1].words.add(word)
        matches += 1
        if matches == _LOOKED_AT:
            break
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
