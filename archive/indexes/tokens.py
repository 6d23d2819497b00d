"""How an index cuts text into words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    lowercase: bool = True
    min_length: int = 2  # shorter words are left out

    def __call__(self, text: str) -> list[str]:
        """The words in their order, as the index knows them."""
        text = text if text.isascii() else unicodedata.normalize("NFC", text)
        text = text.lower() if self.lowercase else text
        shortest = self.min_length
        return [word for word in _WORD.findall(text) if len(word) >= shortest]
