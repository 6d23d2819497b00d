"""How documents come and go. The caller's transaction holds it all: text, passages, words, citations.

What goes is only marked at first (`tombstones`): taking words out of the index costs as much as putting them in,
and is done in batches between the writes, by the housekeeper. Nobody sees what is marked.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence

from pointsman.archive.model.model import Chunk, Document, FileState, PreparedDocument
from pointsman.archive.store.sqlite import citations
from pointsman.archive.store.sqlite.compression import packed
from pointsman.archive.text.identifiers import parts

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

AfterWriting = Callable[[], None]
_Row = tuple[int, str | None, str, int, int, int]  # id, heading, text, place, start and end line


def put(connection: sqlite3.Connection, collection: int, documents: Sequence[PreparedDocument]) -> None:
    (number,) = connection.execute("SELECT value FROM counters WHERE name = 'passage'").fetchone()
    first, arrived, more = number, 0, 0
    for prepared in documents:
        row, old_title, old_count = _write_document(connection, collection, prepared)
        old = _passages(connection, row) if old_count else []
        kept, new, gone = _compared(prepared, old, old_title)
        _bury(connection, gone)
        _move(connection, kept)
        _insert(connection, collection, row, prepared.document.title, number, new)
        citations.write(connection, row, prepared.document, prepared.citations)
        number += len(new)
        arrived += old_title is None
        more += len(new) - len(gone)
    if number != first:
        connection.execute("UPDATE counters SET value = ? WHERE name = 'passage'", (number,))
    _count(connection, collection, arrived, more)


def remove(connection: sqlite3.Connection, collection: int, rows: Sequence[int]) -> None:
    gone = 0
    for row in rows:
        citations.forget(connection, row)
        passages = connection.execute("SELECT id FROM passages WHERE document = ?", (row,)).fetchall()
        _bury(connection, [number for (number,) in passages])
        gone += len(passages)
        connection.execute("DELETE FROM documents WHERE id = ?", (row,))
    _count(connection, collection, -len(rows), -gone)


def origin_row(origin: FileState | None) -> tuple[str | None, int | None, int | None, str | None]:
    if origin is None:
        return None, None, None, None
    return origin.path, origin.size, origin.mtime_ns, origin.sha256


def _write_document(
    connection: sqlite3.Connection, collection: int, prepared: PreparedDocument
) -> tuple[int, str | None, int]:
    """Its row, and the title and number of passages it had before."""
    document = prepared.document
    values = (*_described(document), len(prepared.chunks), *origin_row(prepared.origin), packed(document.content))
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


def _described(document: Document) -> tuple[str, int, str, str, str | None, str, str | None]:
    return (
        document.title,
        len(document.content),
        document.source,
        document.date,
        document.url,
        json.dumps(document.tags, ensure_ascii=False),
        json.dumps(dict(document.metadata), ensure_ascii=False, default=str) if document.metadata else None,
    )


def _passages(connection: sqlite3.Connection, row: int) -> list[_Row]:
    return connection.execute(
        "SELECT id, heading, text, place, start_line, end_line FROM passages WHERE document = ? ORDER BY place", (row,)
    ).fetchall()


def _compared(
    prepared: PreparedDocument, old: Sequence[_Row], old_title: str | None
) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, Chunk]], list[int]]:
    """What stays but at another place, what is new with its place, and the numbers of what goes."""
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


def _bury(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
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
    texts = [(title, chunk.heading, chunk.text, parts(title, chunk.heading, chunk.text)) for _, chunk in new]
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


def _count(connection: sqlite3.Connection, collection: int, documents: int, passages: int) -> None:
    if documents or passages:
        connection.execute(
            "UPDATE collections SET documents = documents + ?, passages = passages + ? WHERE id = ?",
            (documents, passages, collection),
        )
