"""The interface of an index that callers create, in memory or in the store, and its tokenizer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

WORD = re.compile(r"\w+")
GAP = ""  # keeps the position of a skipped word, so that a phrase matches adjacent words only


@dataclass(frozen=True, slots=True)
class Tokenizer:
    lowercase: bool = True
    min_length: int = 2  # shorter words are not indexed

    def __call__(self, text: str) -> list[str]:
        """The words in order, as they are indexed; `GAP` stands for a skipped one."""
        shortest = self.min_length
        return [word if len(word) >= shortest else GAP for word in WORD.findall(self.fold(compose(text)))]

    def fold(self, text: str) -> str:
        return text.lower() if self.lowercase else text


def compose(text: str) -> str:
    """Normalize to NFC: one character for a letter and its accent."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


Backend = Literal["memory", "sqlite"]


class IndexFullError(Exception):
    """A limit is reached; nothing was changed. The message says which limit, and the next step."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A document as it was added."""

    doc_id: str
    content: str
    metadata: dict[str, Any]


class IndexView(Protocol):
    """A snapshot of an index for one search. Numbers of documents are valid in this snapshot only."""

    def size(self) -> int: ...

    def postings(self, word: str) -> dict[int, int]:
        """The documents with the word, and how often each has it."""
        ...

    def holds_phrase(self, number: int, words: Sequence[str]) -> bool:
        """Whether the document has these words next to each other."""
        ...

    def entry(self, number: int) -> Entry: ...


class Index(Protocol):
    """All methods raise StoreError if the index is in a store."""

    @property
    def backend(self) -> Backend: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def add(self, entry: Entry, words: Sequence[str]) -> bool:
        """Add the document, or replace the one with the same id; whether there was one.

        Raises:
            IndexFullError: the index is full.
        """
        ...

    def view(self) -> AbstractContextManager[IndexView]: ...


class StoredIndex(Index, Protocol):
    def entries(self) -> Iterator[Entry]:
        """All documents, oldest first."""
        ...


class StoredIndexes(Protocol):
    """Indexes in the store. They outlive the process."""

    def create(self, name: str, tokenizer: Tokenizer, at_most: int) -> bool:
        """False: the name is taken. Raises IndexFullError if there are `at_most` already, StoreError."""
        ...

    def find(self, name: str) -> StoredIndex | None: ...

    def names(self) -> list[str]: ...
