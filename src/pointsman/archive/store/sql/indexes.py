"""Indexes that callers created, persisted in the store."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from pointsman.archive.model.indexes import Entry, IndexFullError, Tokenizer
from pointsman.archive.store.sql.database import Connection, Database

SCHEMA = """
CREATE TABLE search_indexes (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    lowercase INTEGER NOT NULL,
    min_length INTEGER NOT NULL
);
CREATE TABLE search_entries (
    id INTEGER PRIMARY KEY,
    index_id INTEGER NOT NULL REFERENCES search_indexes (id),
    doc_id TEXT NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,
    UNIQUE (index_id, doc_id)
);
CREATE TABLE search_postings (
    index_id INTEGER NOT NULL,
    word TEXT NOT NULL,
    entry INTEGER NOT NULL,
    places BLOB NOT NULL, -- which words of the document it is: four bytes each, ascending
    PRIMARY KEY (index_id, word, entry)
) WITHOUT ROWID;
CREATE INDEX search_postings_of_entry ON search_postings (entry);
"""
_ENTRIES_READ = 100  # at a time
_LONGEST_WORD = 400  # characters: a longer one is stored as its beginning and a hash
_PLACE_BYTES = array("I").itemsize


class SqlIndexes:
    """Fits `StoredIndexes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, tokenizer: Tokenizer, at_most: int) -> bool:
        with self._database.writing() as connection:
            if _find_row(connection, name) is not None:
                return False
            (count,) = connection.execute("SELECT count(*) FROM search_indexes").fetchone()
            if count >= at_most:
                raise IndexFullError(
                    f"There are {count} indexes in the store, which is the limit. Use one of them, or raise the "
                    "limit in POINTSMAN_ARCHIVE_INDEX_LIMITS."
                )
            connection.execute(
                "INSERT INTO search_indexes (name, lowercase, min_length) VALUES (?, ?, ?)",
                (name, int(tokenizer.lowercase), tokenizer.min_length),
            )
        return True

    def find(self, name: str) -> SqlIndex | None:
        with self._database.reading() as connection:
            row = _find_row(connection, name)
        if row is None:
            return None
        number, lowercase, min_length = row
        return SqlIndex(self._database, number, Tokenizer(bool(lowercase), min_length))

    def names(self) -> list[str]:
        with self._database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM search_indexes")]


class SqlIndex:
    """Fits `Index`."""

    backend: Literal["sqlite"] = "sqlite"

    def __init__(self, database: Database, number: int, tokenizer: Tokenizer) -> None:
        self._database = database
        self._number = number
        self.tokenizer = tokenizer

    def add(self, entry: Entry, words: Sequence[str]) -> bool:
        places = _places(words)
        with self._database.writing() as connection:
            former = connection.execute(
                "SELECT id FROM search_entries WHERE index_id = ? AND doc_id = ?", (self._number, entry.doc_id)
            ).fetchone()
            # A replaced document keeps its row, so that the order of rows does not depend on replacements.
            (row,) = connection.execute(
                "INSERT INTO search_entries (index_id, doc_id, content, metadata) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (index_id, doc_id) DO UPDATE SET content = excluded.content, metadata = excluded.metadata "
                "RETURNING id",
                (self._number, entry.doc_id, entry.content, json.dumps(entry.metadata)),
            ).fetchone()
            connection.execute("DELETE FROM search_postings WHERE entry = ?", (row,))
            connection.executemany(
                "INSERT INTO search_postings (index_id, word, entry, places) VALUES (?, ?, ?, ?)",
                [(self._number, word, row, packed) for word, packed in sorted(places.items())],
            )
        return former is not None

    def entries(self) -> Iterator[Entry]:
        last = 0
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT id, doc_id, content, metadata FROM search_entries WHERE index_id = ? AND id > ? "
                    "ORDER BY id LIMIT ?",
                    (self._number, last, _ENTRIES_READ),
                ).fetchall()
            for _, doc_id, content, metadata in rows:
                yield Entry(doc_id, content, json.loads(metadata))
            if not rows:
                return
            last = rows[-1][0]

    @contextmanager
    def view(self) -> Iterator[_View]:
        with self._database.reading() as connection:
            yield _View(connection, self._number)


class _View:
    """Fits `IndexView`."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def size(self) -> int:
        found = self._connection.execute("SELECT count(*) FROM search_entries WHERE index_id = ?", (self._number,))
        return int(found.fetchone()[0])

    def postings(self, word: str) -> dict[int, int]:
        return dict(
            self._connection.execute(
                f"SELECT entry, length(places) / {_PLACE_BYTES} FROM search_postings WHERE index_id = ? AND word = ?",
                (self._number, _key(word)),
            ).fetchall()
        )

    def holds_phrase(self, number: int, words: Sequence[str]) -> bool:
        starts: set[int] | None = None
        for offset, word in enumerate(words):
            here = {place - offset for place in self._places(number, word)}
            starts = here if starts is None else starts & here
            if not starts:
                return False
        return True

    def entry(self, number: int) -> Entry:
        doc_id, content, metadata = self._connection.execute(
            "SELECT doc_id, content, metadata FROM search_entries WHERE id = ?", (number,)
        ).fetchone()
        return Entry(doc_id, content, json.loads(metadata))

    def _places(self, number: int, word: str) -> array[int]:
        found = self._connection.execute(
            "SELECT places FROM search_postings WHERE index_id = ? AND word = ? AND entry = ?",
            (self._number, _key(word), number),
        ).fetchone()
        return array("I", found[0] if found is not None else b"")


def _find_row(connection: Connection, name: str) -> tuple[int, int, int] | None:
    found = connection.execute("SELECT id, lowercase, min_length FROM search_indexes WHERE name = ?", (name,))
    row: tuple[int, int, int] | None = found.fetchone()
    return row


def _key(word: str) -> str:
    """PostgreSQL's indexes take no text of more than some kilobytes."""
    if len(word) <= _LONGEST_WORD:
        return word
    return f"{word[:_LONGEST_WORD]}…{hashlib.blake2b(word.encode(errors='replace'), digest_size=16).hexdigest()}"


def _places(words: Sequence[str]) -> dict[str, bytes]:
    places: dict[str, array[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(_key(word), array("I")).append(place)
    return {word: found.tobytes() for word, found in places.items()}
