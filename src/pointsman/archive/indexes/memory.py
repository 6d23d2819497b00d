"""An index in memory: words to the documents that hold them, and each document as a row of numbers of words."""

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

# What Python needs for these, beside the text itself; measured, and rounded up.
_BYTES_OF_A_DOCUMENT = 800
_BYTES_OF_A_WORD = 450
_BYTES_OF_A_POSTING = 8
_BYTES_OF_A_PLACE = 4


@dataclass(frozen=True, slots=True)
class _Held:
    number: int
    entry: Entry
    places: array[int]  # the number of each of its words, in their order
    cost: int


class _Postings:
    """The documents that hold a word, by ascending number, and how often each does."""

    __slots__ = ("counts", "documents", "word")

    def __init__(self, word: int) -> None:
        self.word = word
        self.documents = array("I")
        self.counts = array("I")


class Room:
    """What all indexes in memory may hold together, and the lock under which they change."""

    def __init__(self, documents: int, bytes_: int) -> None:
        self._most_documents = documents
        self._most_bytes = bytes_
        self._documents = 0
        self._bytes = 0
        self.lock = threading.RLock()

    def check(self, documents: int, bytes_: int) -> None:
        """Whether so much more would fit. Raises IndexFullError."""
        if documents > 0 and self._documents + documents > self._most_documents:
            raise IndexFullError(
                f"The indexes in memory hold {self._documents} documents, and {self._most_documents} is the limit. "
                f"{_HELP}"
            )
        if bytes_ > 0 and self._bytes + bytes_ > self._most_bytes:
            raise IndexFullError(
                f"The indexes in memory take about {self._bytes} bytes, this document would take {bytes_} more, "
                f"and {self._most_bytes} is the limit. {_HELP}"
            )

    def book(self, documents: int, bytes_: int) -> None:
        self._documents += documents
        self._bytes += bytes_


_HELP = (
    "Use an index with the backend `sqlite`, replace documents by shorter ones, or raise the limit in "
    "POINTSMAN_ARCHIVE_INDEX_LIMITS."
)


class MemoryIndex:
    """Fits `Index` and, under its lock, `IndexView`."""

    backend: Literal["memory"] = "memory"

    def __init__(self, tokenizer: Tokenizer, room: Room) -> None:
        self.tokenizer = tokenizer
        self._room = room
        self._words: dict[str, _Postings] = {}
        self._next_word = 0
        self._documents: dict[int, _Held] = {}
        self._numbers: dict[str, int] = {}  # by the documents' own ids

    def add(self, entry: Entry, words: Sequence[str]) -> bool:
        counts = Counter(words)
        cost = _cost(entry, len(words), len(counts))
        with self._room.lock:
            # A document that is replaced keeps its number, so that the index is as if it had always been so.
            number = self._numbers.get(entry.doc_id, len(self._numbers))
            replaced = self._documents.get(number)
            growth = cost - (replaced.cost if replaced else 0)
            fresh = sum(word not in self._words for word in counts)
            self._room.check(0 if replaced else 1, growth + fresh * _BYTES_OF_A_WORD)
            known = len(self._words)
            if replaced is not None:
                self._forget(replaced)
            self._take(number, entry, words, counts, cost)
            self._numbers[entry.doc_id] = number
            self._room.book(0 if replaced else 1, growth + (len(self._words) - known) * _BYTES_OF_A_WORD)
        return replaced is not None

    @contextmanager
    def view(self) -> Iterator[MemoryIndex]:
        with self._room.lock:
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
        places, wanted = self._documents[number].places, array("I", known)
        packed, sought = places.tobytes(), wanted.tobytes()
        at = packed.find(sought)
        while at >= 0 and at % places.itemsize:  # it lies across the border of two numbers
            at = packed.find(sought, at + 1)
        return at >= 0

    def entry(self, number: int) -> Entry:
        return self._documents[number].entry

    def _take(self, number: int, entry: Entry, words: Sequence[str], counts: Counter[str], cost: int) -> None:
        for word, count in counts.items():
            postings = self._words.get(word)
            if postings is None:
                postings = self._words[word] = _Postings(self._next_word)
                self._next_word += 1
            place = bisect_left(postings.documents, number)
            postings.documents.insert(place, number)
            postings.counts.insert(place, count)
        places = array("I", [self._words[word].word for word in words])
        self._documents[number] = _Held(number, entry, places, cost)

    def _forget(self, held: _Held) -> None:
        for word in set(self.tokenizer(held.entry.content)):
            postings = self._words[word]
            place = bisect_left(postings.documents, held.number)
            postings.documents.pop(place)
            postings.counts.pop(place)
            if not postings.documents:
                del self._words[word]
        del self._documents[held.number]


def _cost(entry: Entry, words: int, different: int) -> int:
    """About what it takes in memory, without words that are new to the index."""
    text = sum(len(part) * _width(part) for part in (entry.doc_id, entry.content, *map(str, entry.metadata.items())))
    return text + _BYTES_OF_A_DOCUMENT + words * _BYTES_OF_A_PLACE + different * _BYTES_OF_A_POSTING


def _width(text: str) -> int:
    """Bytes of each character, as Python keeps it."""
    if text.isascii():
        return 1
    highest = max(text)
    return 1 if highest < "\u0100" else 2 if highest < "\U00010000" else 4
