"""Writes and removes documents within the caller's transaction: text, passages, words, citations.

A removed passage only gets a row in `tombstones`, which hides it: taking its words out of the index costs as much as
adding them, so the housekeeper does that in batches between the writes.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Sequence

from pointsman.archive.model.documents import Chunk, Document, FileState, PreparedDocument
from pointsman.archive.store.sqlite import citations
from pointsman.archive.store.sqlite.database import counter, set_counter
from pointsman.archive.text.words import identifier_parts

SCHEMA = """
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document INTEGER,
    collection INTEGER NOT NULL,
    place INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    title TEXT NOT NULL,
    heading TEXT,
    text TEXT NOT NULL,
    parts TEXT
);
CREATE INDEX passages_of_document ON passages (document);
CREATE TABLE tombstones (seq INTEGER PRIMARY KEY AUTOINCREMENT, passage INTEGER NOT NULL);
INSERT INTO counters VALUES ('passage', 0), ('cleaned', 0);
CREATE VIRTUAL TABLE words USING fts5 (
    title, heading, text, parts, content = 'passages', content_rowid = 'id', tokenize = 'porter unicode61'
);
INSERT INTO words (words, rank) VALUES ('automerge', 0);
INSERT INTO words (words, rank) VALUES ('crisismerge', 64);
"""

_Row = tuple[int, str | None, str, int, int, int]  # id, heading, text, place, start and end line


def put(connection: sqlite3.Connection, collection: int, documents: Sequence[PreparedDocument]) -> None:
    """Insert or replace documents. Passages that stay the same keep their rows."""
    number = first = counter(connection, "passage")
    arrived, more = 0, 0
    for prepared in documents:
        row, old_title, old_count = _write_document(connection, collection, prepared)
        old = _read_passages(connection, row) if old_count else []
        moved, new, gone = _compare(prepared, old, old_title)
        _mark_removed(connection, gone)
        _move(connection, moved)
        _insert(connection, collection, row, prepared.document.title, number, new)
        citations.write(connection, row, prepared.document, prepared.citations)
        number += len(new)
        arrived += old_title is None
        more += len(new) - len(gone)
    if number != first:
        set_counter(connection, "passage", number)
    _add_to_counts(connection, collection, arrived, more)


def remove(connection: sqlite3.Connection, collection: int, rows: Sequence[int]) -> None:
    gone = 0
    for row in rows:
        citations.forget(connection, row)
        passages = connection.execute("SELECT id FROM passages WHERE document = ?", (row,)).fetchall()
        _mark_removed(connection, [number for (number,) in passages])
        gone += len(passages)
        connection.execute("DELETE FROM documents WHERE id = ?", (row,))
    _add_to_counts(connection, collection, -len(rows), -gone)


def origin_row(origin: FileState | None) -> tuple[str | None, int | None, int | None, str | None]:
    if origin is None:
        return None, None, None, None
    return origin.path, origin.size, origin.mtime_ns, origin.sha256


def _write_document(
    connection: sqlite3.Connection, collection: int, prepared: PreparedDocument
) -> tuple[int, str | None, int]:
    """Its row, and the title and number of passages it had before."""
    document = prepared.document
    values = (*_description(document), len(prepared.chunks), *origin_row(prepared.origin), compress(document.content))
    old = connection.execute(
        "SELECT id, title, passages FROM documents WHERE collection = ? AND name = ?", (collection, document.id)
    ).fetchone()
    if old is not None:
        connection.execute(
            "UPDATE documents SET title = ?, size = ?, source = ?, date = ?, url = ?, tags = ?, metadata = ?, "
            "passages = ?, path = ?, file_size = ?, mtime_ns = ?, sha256 = ?, content = ? WHERE id = ?",
            (*values, old[0]),
        )
        row, title, passages = old
        return row, title, passages
    cursor = connection.execute(
        "INSERT INTO documents (title, size, source, date, url, tags, metadata, passages, path, file_size, mtime_ns, "
        "sha256, content, collection, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, collection, document.id),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid, None, 0


def _description(document: Document) -> tuple[str, int, str, str, str | None, str, str | None]:
    return (
        document.title,
        len(document.content),
        document.source,
        document.date,
        document.url,
        json.dumps(document.tags, ensure_ascii=False),
        json.dumps(dict(document.metadata), ensure_ascii=False, default=str) if document.metadata else None,
    )


def _read_passages(connection: sqlite3.Connection, row: int) -> list[_Row]:
    return connection.execute(
        "SELECT id, heading, text, place, start_line, end_line FROM passages WHERE document = ? ORDER BY place", (row,)
    ).fetchall()


def _compare(
    prepared: PreparedDocument, old: Sequence[_Row], old_title: str | None
) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, Chunk]], list[int]]:
    """Passages that moved, new ones with their places, and the numbers of those that are gone."""
    if old_title != prepared.document.title:
        return [], list(enumerate(prepared.chunks, start=1)), [row[0] for row in old]
    known: defaultdict[tuple[str | None, str], list[_Row]] = defaultdict(list)
    for row in reversed(old):  # the first of equals is taken first
        known[row[1], row[2]].append(row)
    moved, new = [], []
    for place, chunk in enumerate(prepared.chunks, start=1):
        same = known.get((chunk.heading, chunk.text))
        if not same:
            new.append((place, chunk))
            continue
        number, _, _, *where = same.pop()
        if where != [place, chunk.start_line, chunk.end_line]:
            moved.append((place, chunk.start_line, chunk.end_line, number))
    return moved, new, [row[0] for rows in known.values() for row in rows]


def _mark_removed(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    gone = [(number,) for number in numbers]
    connection.executemany("UPDATE passages SET document = NULL WHERE id = ?", gone)
    connection.executemany("INSERT INTO tombstones (passage) VALUES (?)", gone)


def _move(connection: sqlite3.Connection, moved: Sequence[tuple[int, int, int, int]]) -> None:
    connection.executemany("UPDATE passages SET place = ?, start_line = ?, end_line = ? WHERE id = ?", moved)


def _insert(
    connection: sqlite3.Connection,
    collection: int,
    document: int,
    title: str,
    last: int,
    new: Sequence[tuple[int, Chunk]],
) -> None:
    where = [(document, collection, place, chunk.start_line, chunk.end_line) for place, chunk in new]
    texts = [(title, chunk.heading, chunk.text, identifier_parts(title, chunk.heading, chunk.text)) for _, chunk in new]
    numbers = range(last + 1, last + 1 + len(new))
    connection.executemany(
        "INSERT INTO passages (id, document, collection, place, start_line, end_line, title, heading, text, parts) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(number, *place, *text) for number, place, text in zip(numbers, where, texts, strict=True)],
    )
    connection.executemany(
        "INSERT INTO words (rowid, title, heading, text, parts) VALUES (?, ?, ?, ?, ?)",
        [(number, *text) for number, text in zip(numbers, texts, strict=True)],
    )


def _add_to_counts(connection: sqlite3.Connection, collection: int, documents: int, passages: int) -> None:
    if documents or passages:
        connection.execute(
            "UPDATE collections SET documents = documents + ?, passages = passages + ? WHERE id = ?",
            (documents, passages, collection),
        )


def compress(text: str) -> bytes:
    """Whole documents are stored compressed: searches read their passages, which are plain text.

    Raises:
        UnicodeEncodeError: the text contains a lone surrogate.
    """
    return zlib.compress(text.encode())


def decompress(stored: bytes) -> str:
    return zlib.decompress(stored).decode()
