"""Splits text into the words that the index holds: folded, without accents, stemmed.

SQLite's tokenizer `porter unicode61` defines them. It is asked once for each new character and word; tables in memory
answer for the rest, several times as fast. Every engine uses these words, so that all of them rank alike.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

MOST_STEMS = 200_000  # kept in memory
_MARK = "\u0300"  # stands for any accent that is a character of its own: it never starts a word
_SPAN = re.compile(f"[^ {_MARK}][^ ]*")


class Span(NamedTuple):
    """A word and where it is in the text, in characters."""

    word: str
    start: int
    end: int


def tokenize(text: str) -> list[str]:
    """The words of a text, in order."""
    return stems(folded_words(text))


def folded_words(text: str) -> list[str]:
    """The words of a text before they are stemmed."""
    return text.translate(_folded).replace(_MARK, "").split()


def stems(words: Sequence[str]) -> list[str]:
    """The stem of each folded word."""
    return _stems.of(words)


def spans(text: str) -> list[Span]:
    """The words of a text with their places."""
    found = list(_SPAN.finditer(text.translate(_folded)))
    words = stems([each[0].replace(_MARK, "") for each in found])
    return [Span(word, *each.span()) for word, each in zip(words, found, strict=True)]


class _Tokenizer:
    """SQLite's own, by way of an index in memory. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = '{self._name}')")
        connection.execute("CREATE VIRTUAL TABLE found USING fts5vocab (words, instance)")
        return connection

    def words(self, text: str) -> list[str]:
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                self._connection.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", (text,))
                rows = self._connection.execute("SELECT term FROM found ORDER BY offset").fetchall()
            finally:
                self._connection.execute("ROLLBACK")
        return [word for (word,) in rows]


class _Folding(dict[int, str]):
    """For `str.translate`: a character of a word as it is compared, a blank for any that separates words."""

    def __init__(self) -> None:
        self._tokenizer = _Tokenizer("unicode61")

    def __missing__(self, code: int) -> str:
        words = self._tokenizer.words(f"a{chr(code)}a")
        return self.setdefault(code, " " if len(words) > 1 else words[0][1:-1] or _MARK)


class _Stems:
    """Thread-safe."""

    def __init__(self) -> None:
        self._tokenizer = _Tokenizer("porter unicode61")
        self._known: dict[str, str] = {}

    def of(self, words: Sequence[str]) -> list[str]:
        known = self._known
        try:
            return [known[word] for word in words]
        except KeyError:
            pass
        if len(known) > MOST_STEMS:
            known = self._known = {}
        new = list({word for word in words if word not in known})
        found = self._tokenizer.words(" ".join(new))
        stems = dict(zip(new, found, strict=True))
        known.update(stems)
        return [stems.get(word) or known[word] for word in words]


_folded = _Folding()
_stems = _Stems()
