"""The words of a text as they are compared: whole, unstemmed, without capitals and accents."""

from __future__ import annotations

import re
import unicodedata

SHORTEST, LONGEST = 4, 32  # letters; shorter words are not corrected, longer ones are not words
_WORD = re.compile(rf"(?<![^\W_])[^\W\d_]{{{SHORTEST},{LONGEST}}}(?![^\W_])")


def words_of(*texts: str | None) -> set[str]:
    """Those that may be meant by others. What holds a digit is a number or a name, and is no word."""
    return {word for text in texts if text for word in _WORD.findall(folded(text))}


def folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))


def is_word(text: str) -> bool:
    return bool(_WORD.fullmatch(text))
