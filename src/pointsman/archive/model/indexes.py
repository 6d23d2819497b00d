"""What an index is to those who fill and search it, wherever it is kept."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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


Backend = Literal["memory", "sqlite"]


class IndexFullError(Exception):
    """There is no room for more; nothing was changed. The message says what is full and what helps."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A document as it was added."""

    doc_id: str
    content: str
    metadata: dict[str, Any]


class IndexView(Protocol):
    """One state of an index, for the length of a search. Documents go by numbers that hold only as long."""

    def size(self) -> int: ...

    def postings(self, word: str) -> dict[int, int]:
        """Which documents hold the word, and how often."""
        ...

    def holds_phrase(self, number: int, words: Sequence[str]) -> bool:
        """Whether the words stand in the document one after another."""
        ...

    def entry(self, number: int) -> Entry: ...


class Index(Protocol):
    """Raises StoreError from all of it, where it is kept in a store."""

    @property
    def backend(self) -> Backend: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def add(self, entry: Entry, words: Sequence[str]) -> bool:
        """Add the document or take the place of one with the same id; whether there was one.

        Raises:
            IndexFullError: there is no room for it.
        """
        ...

    def view(self) -> AbstractContextManager[IndexView]: ...


class KeptIndexes(Protocol):
    """Indexes in a store. They outlive the process."""

    def create(self, name: str, tokenizer: Tokenizer, at_most: int) -> bool:
        """False: the name is taken. Raises IndexFullError where there are `at_most` already, StoreError."""
        ...

    def find(self, name: str) -> Index | None: ...

    def names(self) -> list[str]: ...
