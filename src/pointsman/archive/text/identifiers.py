"""The parts of names that programs write as one word, so that `getUserName` is found by "user"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pointsman.providers.text import has_cjk

_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{3,64}(?![A-Za-z0-9])")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CJK_RUN = re.compile("[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]{2,}")


def parts(*texts: str | None) -> str | None:
    """What an index should know besides the texts themselves; None where they hold no such names.

    Text without spaces (Chinese, Japanese, Korean) is one long word to the index: its parts are pairs of characters.
    """
    found = [part for text in texts if text for part in _found(text)]
    return " ".join(found) or None


def split(word: str) -> str:
    """The parts of one word, or nothing where it has only one."""
    if has_cjk(word):
        return " ".join(_pairs(word))
    if not _HUMP.search(word):
        return ""
    return " ".join(_PIECE.findall(word))


def _found(text: str) -> Iterator[str]:
    if _HUMP.search(text):
        for word in _WORD.findall(text):
            if not word.islower() and not word.isupper() and _HUMP.search(word):
                yield from _PIECE.findall(word)
    if has_cjk(text):
        yield from _pairs(text)


def _pairs(text: str) -> Iterator[str]:
    for run in _CJK_RUN.findall(text):
        for start in range(len(run) - 1):
            yield run[start : start + 2]
