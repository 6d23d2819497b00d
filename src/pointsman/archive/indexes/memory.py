"""An inverted index in memory; each document is also kept as an array of word numbers, for phrases."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pointsman.archive.model.indexes import Entry, IndexFullError, Tokenizer

# What Python needs for these besides the text itself; measured and rounded up.
_BYTES_OF_A_DOCUMENT = 800
_BYTES_OF_A_WORD = 450
_BYTES_OF_A_POSTING = 8
_BYTES_OF_A_POSITION = 4


@dataclass(frozen=True, slots=True)
class _Document:
    number: int
    entry: Entry
    words: array[int]  # the numbers of its words, in order
    cost: int  # in bytes


class _Postings:
    """The documents that contain a word, by ascending number, and how often."""

    __slots__ = ("counts", "documents", "word")

    def __init__(self, word: int) -> None:
        self.word = word
        self.documents = array("I")
        self.counts = array("I")


class Budget:
    """The limits that all indexes in memory share, and the lock under which they change."""

    def __init__(self, documents: int, bytes_: int) -> None:
        self._max_documents = documents
        self._max_bytes = bytes_
        self._documents = 0
        self._bytes = 0
        self.lock = threading.RLock()

    def check(self, documents: int, bytes_: int) -> None:
        """Raises IndexFullError: this much more would exceed a limit."""
        if documents > 0 and self._documents + documents > self._max_documents:
            raise IndexFullError(
                f"The indexes in memory hold {self._documents} documents; the limit is {self._max_documents}. {_HELP}"
            )
        if bytes_ > 0 and self._bytes + bytes_ > self._max_bytes:
            raise IndexFullError(
                f"The indexes in memory take about {self._bytes} bytes and this document would take {bytes_} more; "
                f"the limit is {self._max_bytes}. {_HELP}"
            )

    def add(self, documents: int, bytes_: int) -> None:
        self._documents += documents
        self._bytes += bytes_


_HELP = (
    "Use an index with the backend `sqlite`, replace documents by shorter ones, or raise the limit in "
    "POINTSMAN_ARCHIVE_INDEX_LIMITS."
)


class MemoryIndex:
    """Fits `Index` and, under its lock, `IndexView`."""

    backend: Literal["memory"] = "memory"

    def __init__(self, tokenizer: Tokenizer, budget: Budget) -> None:
        self.tokenizer = tokenizer
        self._budget = budget
        self._words: dict[str, _Postings] = {}
        self._next_word = 0
        self._documents: dict[int, _Document] = {}
        self._numbers: dict[str, int] = {}  # by the documents' own ids

    def add(self, entry: Entry, words: Sequence[str]) -> bool:
        counts = Counter(words)
        cost = _cost(entry, len(words), len(counts))
        with self._budget.lock:
            # A replaced document keeps its number, so that the index equals one that never had the old version.
            number = self._numbers.get(entry.doc_id, len(self._numbers))
            replaced = self._documents.get(number)
            growth = cost - (replaced.cost if replaced else 0)
            fresh = sum(word not in self._words for word in counts)
            self._budget.check(0 if replaced else 1, growth + fresh * _BYTES_OF_A_WORD)
            known = len(self._words)
            if replaced is not None:
                self._remove(replaced)
            self._insert(number, entry, words, counts, cost)
            self._numbers[entry.doc_id] = number
            self._budget.add(0 if replaced else 1, growth + (len(self._words) - known) * _BYTES_OF_A_WORD)
        return replaced is not None

    @contextmanager
    def view(self) -> Iterator[MemoryIndex]:
        with self._budget.lock:
            yield self

    def size(self) -> int:
        return len(self._documents)

    def postings(self, word: str) -> dict[int, int]:
        found = self._words.get(word)
        return dict(zip(found.documents, found.counts, strict=True)) if found is not None else {}

    def holds_phrase(self, number: int, words: Sequence[str]) -> bool:
        known = [self._words[word].word for word in words if word in self._words]
        if len(known) < len(words):
            return False
        numbers, wanted = self._documents[number].words, array("I", known)
        packed, sought = numbers.tobytes(), wanted.tobytes()
        at = packed.find(sought)
        while at >= 0 and at % numbers.itemsize:  # a match across the boundary of two numbers
            at = packed.find(sought, at + 1)
        return at >= 0

    def entry(self, number: int) -> Entry:
        return self._documents[number].entry

    def _insert(self, number: int, entry: Entry, words: Sequence[str], counts: Counter[str], cost: int) -> None:
        for word, count in counts.items():
            postings = self._words.get(word)
            if postings is None:
                postings = self._words[word] = _Postings(self._next_word)
                self._next_word += 1
            at = bisect_left(postings.documents, number)
            postings.documents.insert(at, number)
            postings.counts.insert(at, count)
        numbers = array("I", [self._words[word].word for word in words])
        self._documents[number] = _Document(number, entry, numbers, cost)

    def _remove(self, document: _Document) -> None:
        for word in set(self.tokenizer(document.entry.content)):
            postings = self._words[word]
            at = bisect_left(postings.documents, document.number)
            postings.documents.pop(at)
            postings.counts.pop(at)
            if not postings.documents:
                del self._words[word]
        del self._documents[document.number]


def _cost(entry: Entry, words: int, different: int) -> int:
    """Estimate the memory that a document takes, without words that are new to the index."""
    text = sum(len(part) * _width(part) for part in (entry.doc_id, entry.content, *map(str, entry.metadata.items())))
    return text + _BYTES_OF_A_DOCUMENT + words * _BYTES_OF_A_POSITION + different * _BYTES_OF_A_POSTING


def _width(text: str) -> int:
    """Bytes per character in CPython."""
    if text.isascii():
        return 1
    highest = max(text)
    return 1 if highest < "\u0100" else 2 if highest < "\U00010000" else 4
