"""The words of a text as they are compared, and the parts of identifiers that are written as one word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from pointsman.providers.text import FUNCTION_WORDS, has_cjk

SHORTEST, LONGEST = 4, 32  # letters; shorter words are not corrected, longer ones are not words
_WORD = re.compile(rf"(?<![^\W_])[^\W\d_]{{{SHORTEST},{LONGEST}}}(?![^\W_])")

_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_IDENTIFIER = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{3,64}(?![A-Za-z0-9])")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAMED = re.compile(r"[^\W\d_][-_./:]?\d|\d[-_./:]?[^\W\d_]|[^\W_]_[^\W_]|\d\.\d+\.\d")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+(?:[-+][\w.+-]+)?)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?<![^\W_])([^\W\d_]{2,})[-_ ]\d{2,}(?![^\W_])")
_CJK_RUN = re.compile("[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]{2,}")


def words_of(*texts: str | None) -> set[str]:
    """The folded, unstemmed words that a misspelt one can be corrected to. Anything with a digit is not a word."""
    return {word for text in texts if text for word in _WORD.findall(fold(text))}


def fold(text: str) -> str:
    """Drop case and accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not unicodedata.combining(c)))


def is_word(text: str) -> bool:
    return bool(_WORD.fullmatch(text))


def is_identifier(word: str) -> bool:
    """Whether a word is an assigned name: `DEC-0054`, `ERR_7`, `sha256`, `max_size`, `getUserById`, `2.3.1`."""
    return bool(_NAMED.search(word) or _HUMP.search(word))


def spellings(text: str) -> tuple[str, ...]:
    """A version number without and with its `v`, which is part of the index's first word; any other text as it is."""
    version = _VERSION.fullmatch(text)
    return (version[1], f"v{version[1]}") if version else (text,)


def numbered_names(text: str) -> list[str]:
    """Names with a number of two or more digits in a text: `DEC-0054`, `DEC 0054`, but not `in 2024`."""
    return [found[0] for found in _NUMBERED.finditer(text) if found[1].lower() not in FUNCTION_WORDS]


def identifier_parts(*texts: str | None) -> str | None:
    """The parts of all identifiers in the texts, for the index: `getUserName` is found by "user". None: there are none.

    Text without spaces (Chinese, Japanese, Korean) is one long word to the index: its parts are pairs of characters.
    """
    found = [part for text in texts if text for part in _parts_in(text)]
    return " ".join(found) or None


def split_identifier(word: str) -> str:
    """The parts of one word, separated by spaces; empty where it has only one."""
    if has_cjk(word):
        return " ".join(_pairs(word))
    if not _HUMP.search(word):
        return ""
    return " ".join(_PART.findall(word))


def _parts_in(text: str) -> Iterator[str]:
    if _HUMP.search(text):
        for word in _IDENTIFIER.findall(text):
            if not word.islower() and not word.isupper() and _HUMP.search(word):
                yield from _PART.findall(word)
    if has_cjk(text):
        yield from _pairs(text)


def _pairs(text: str) -> Iterator[str]:
    for run in _CJK_RUN.findall(text):
        for start in range(len(run) - 1):
            yield run[start : start + 2]
