"""Writes and removes documents within the caller's transaction: text, passages, words, citations.

A removed passage only gets a row in `tombstones`, which hides it; the housekeeper deletes it and takes its words out of
the index, in batches between the writes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pointsman.archive.model.documents import Chunk, Document, FileState, PreparedDocument
from pointsman.archive.store.postings import PassageTexts
from pointsman.archive.store.sql import citations, words
from pointsman.archive.store.sql.database import Connection, counter, set_counter
from pointsman.archive.store.sql.passage_texts import PLACED, Texts, compress, locate
from pointsman.archive.text.words import identifier_parts

# `start` and `size`: where the passage is in the content of its document, in characters; `text`: of one that is not
# in it. `length`: words in the index. `removed`: the row of `removed_texts` that has the content instead.
SCHEMA = """
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document INTEGER,
    removed INTEGER,
    collection INTEGER NOT NULL,
    place INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    start INTEGER NOT NULL,
    size INTEGER NOT NULL,
    length INTEGER NOT NULL,
    heading TEXT,
    text TEXT
);
CREATE INDEX passages_of_document ON passages (document) WHERE document IS NOT NULL;
CREATE INDEX passages_removed ON passages (removed) WHERE removed IS NOT NULL;
CREATE TABLE removed_texts (id INTEGER PRIMARY KEY, title TEXT NOT NULL, content BLOB NOT NULL);
"""


class Place(NamedTuple):
    """Where a passage is in its document."""

    place: int
    start_line: int
    end_line: int
    start: int
    size: int
    text: str | None  # if it is not a part of the content


class _Old(NamedTuple):
    number: int
    heading: str | None
    text: str
    place: Place


class _New(NamedTuple):
    chunk: Chunk
    place: Place


class Added(NamedTuple):
    """A passage to insert, with its document and collection."""

    texts: PassageTexts
    document: int
    collection: int
    place: Place


def put(connection: Connection, collection: int, documents: Sequence[PreparedDocument]) -> None:
    """Insert or replace documents. Passages that stay the same keep their rows."""
    first = counter(connection, "passage")
    added: list[Added] = []
    arrived, gone = 0, 0
    for prepared in {each.document.id: each for each in documents}.values():  # the last of those with the same id
        document = prepared.document
        found = connection.execute(
            "SELECT id, title FROM documents WHERE collection = ? AND name = ?", (collection, document.id)
        ).fetchone()
        row, old_title = found or (None, None)
        old = _read_passages(connection, row) if row is not None else []
        moved, new, removed = _compare(prepared, old, old_title)
        if row is not None:
            _mark_removed(connection, row, removed)
        row = _write_document(connection, collection, prepared, row)
        _move(connection, moved)
        for chunk, place in new:
            parts = identifier_parts(document.title, chunk.heading, chunk.text)
            number = first + len(added) + 1
            texts = PassageTexts(number, document.title, chunk.heading, chunk.text, parts)
            added.append(Added(texts, row, collection, place))
        citations.write(connection, row, document, prepared.citations)
        arrived += old_title is None
        gone += len(removed)
    if added:
        set_counter(connection, "passage", first + len(added))
        insert(connection, added)
    _add_to_counts(connection, collection, arrived, len(added) - gone)


def insert(connection: Connection, added: Sequence[Added]) -> None:
    """Insert passages and index their words."""
    lengths = words.write_segment(connection, [each.texts for each in added])
    connection.executemany(
        "INSERT INTO passages (id, document, collection, place, start_line, end_line, start, size, text, heading, "
        "length) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (texts.number, document, collection, *place, texts.heading, lengths[texts.number])
            for texts, document, collection, place in added
        ],
    )


def remove(connection: Connection, collection: int, rows: Sequence[int]) -> None:
    gone = 0
    for row in rows:
        citations.forget(connection, row)
        passages = connection.execute("SELECT id FROM passages WHERE document = ?", (row,)).fetchall()
        _mark_removed(connection, row, [number for (number,) in passages])
        gone += len(passages)
        connection.execute("DELETE FROM documents WHERE id = ?", (row,))
    _add_to_counts(connection, collection, -len(rows), -gone)


def origin_row(origin: FileState | None) -> tuple[str | None, int | None, int | None, str | None]:
    if origin is None:
        return None, None, None, None
    return origin.path, origin.size, origin.mtime_ns, origin.sha256


def _write_document(connection: Connection, collection: int, prepared: PreparedDocument, row: int | None) -> int:
    """Its row: a new one, or the given one."""
    document = prepared.document
    values = (*_description(document), len(prepared.chunks), *origin_row(prepared.origin), compress(document.content))
    if row is not None:
        connection.execute(
            "UPDATE documents SET title = ?, size = ?, source = ?, date = ?, url = ?, tags = ?, metadata = ?, "
            "passages = ?, path = ?, file_size = ?, mtime_ns = ?, sha256 = ?, content = ? WHERE id = ?",
            (*values, row),
        )
        return row
    (number,) = connection.execute(
        "INSERT INTO documents (title, size, source, date, url, tags, metadata, passages, path, file_size, mtime_ns, "
        "sha256, content, collection, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (*values, collection, document.id),
    ).fetchone()
    return int(number)


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


def _read_passages(connection: Connection, row: int) -> list[_Old]:
    rows = connection.execute(
        f"SELECT id, heading, place, start_line, end_line, {PLACED} FROM passages WHERE document = ? ORDER BY place",
        (row,),
    ).fetchall()
    texts = Texts(connection)
    return [
        _Old(number, heading, texts.of(*placed)[1], Place(*lines, *placed[2:]))
        for number, heading, *lines, placed in ((*each[:5], each[5:]) for each in rows)
    ]


def _compare(
    prepared: PreparedDocument, old: Sequence[_Old], old_title: str | None
) -> tuple[list[tuple[int, Place]], list[_New], list[int]]:
    """Passages that moved, with their numbers; new ones; and the numbers of those that are gone."""
    known: defaultdict[tuple[str | None, str], list[_Old]] = defaultdict(list)
    if old_title == prepared.document.title:
        for row in reversed(old):  # the first of equals is taken first
            known[row.heading, row.text].append(row)
    moved, new, kept = [], [], set()
    for chunk, place in _places(prepared.document.content, prepared.chunks):
        same = known.get((chunk.heading, chunk.text))
        if not same:
            new.append(_New(chunk, place))
            continue
        number, _, _, where = same.pop()
        kept.add(number)
        if where != place:
            moved.append((number, place))
    return moved, new, [row.number for row in old if row.number not in kept]


def _places(content: str, chunks: Iterable[Chunk]) -> Iterator[_New]:
    """Each chunk with its place in the content of its document."""
    after = 0
    for place, chunk in enumerate(chunks, start=1):
        start = locate(content, chunk.text, after)
        lines = place, chunk.start_line, chunk.end_line
        if start is None:
            yield _New(chunk, Place(*lines, 0, 0, chunk.text))
        else:
            after = start + len(chunk.text)
            yield _New(chunk, Place(*lines, start, len(chunk.text), None))


def _mark_removed(connection: Connection, document: int, numbers: Sequence[int]) -> None:
    """Hide passages. The housekeeper still needs their texts: the content that they are parts of is kept aside."""
    if not numbers:
        return
    (removed,) = connection.execute(
        "INSERT INTO removed_texts (title, content) SELECT title, content FROM documents WHERE id = ? RETURNING id",
        (document,),
    ).fetchone()
    connection.executemany(
        "UPDATE passages SET document = NULL, removed = ? WHERE id = ?", [(removed, number) for number in numbers]
    )
    connection.executemany("INSERT INTO tombstones (passage) VALUES (?)", [(number,) for number in numbers])


def _move(connection: Connection, moved: Sequence[tuple[int, Place]]) -> None:
    connection.executemany(
        "UPDATE passages SET place = ?, start_line = ?, end_line = ?, start = ?, size = ?, text = ? WHERE id = ?",
        [(*place, number) for number, place in moved],
    )


def _add_to_counts(connection: Connection, collection: int, documents: int, passages: int) -> None:
    if documents or passages:
        connection.execute(
            "UPDATE collections SET documents = documents + ?, passages = passages + ? WHERE id = ?",
            (documents, passages, collection),
        )
