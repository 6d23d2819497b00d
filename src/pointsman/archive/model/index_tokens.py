"""How an index cuts text into words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

WORD = re.compile(r"\w+")
GAP = ""  # keeps its place, so that a phrase is found only where nothing stands between its words


@dataclass(frozen=True, slots=True)
class Tokenizer:
    lowercase: bool = True
    min_length: int = 2  # shorter words cannot be looked for

    def __call__(self, text: str) -> list[str]:
        """The words in their order, as the index knows them; `GAP` stands for one that is left out."""
        shortest = self.min_length
        return [word if len(word) >= shortest else GAP for word in WORD.findall(self.folded(composed(text)))]

    def folded(self, text: str) -> str:
        return text.lower() if self.lowercase else text


def composed(text: str) -> str:
    """With one character for a letter and its accent, however it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
