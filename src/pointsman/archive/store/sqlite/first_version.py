"""The first version of the store, and how a file becomes one of the second.

In the first, passages had texts of their own, and SQLite's FTS5 indexed them. In the second they are parts of their
documents, and the index is ours (`words.py`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator

from pointsman.archive.store.postings import PassageTexts
from pointsman.archive.store.sql import document_writer, vocabulary, words
from pointsman.archive.store.sql.passage_texts import decompress, locate
from pointsman.archive.store.sqlite.migrations import execute
from pointsman.archive.text.words import words_of

# `tombstones` is the same in the second version.
PASSAGES = """
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

VOCABULARY = """
CREATE TABLE vocabulary (word TEXT PRIMARY KEY, passages INTEGER NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX vocabulary_by_revision ON vocabulary (revision);
CREATE TABLE vocabulary_gone (seq INTEGER PRIMARY KEY, title TEXT, heading TEXT, text TEXT);
INSERT INTO counters VALUES ('counted passage', 0), ('vocabulary revision', 0);
CREATE TRIGGER vocabulary_discounts BEFORE DELETE ON passages
WHEN old.id <= (SELECT value FROM counters WHERE name = 'counted passage')
BEGIN
    INSERT INTO vocabulary_gone (title, heading, text) VALUES (old.title, old.heading, old.text);
END;
"""

_BATCH = 4_096  # passages
_OLD = "first_passages"


def upgrade(connection: sqlite3.Connection) -> None:
    """To the second version, within the caller's transaction."""
    _forget_removed(connection)
    for statement in (
        "DROP TRIGGER vocabulary_discounts",
        "DROP TABLE vocabulary_gone",
        "DROP TABLE words",
        "DROP INDEX passages_of_document",
        f"ALTER TABLE passages RENAME TO {_OLD}",
    ):
        connection.execute(statement)
    execute(connection, document_writer.SCHEMA)
    execute(connection, words.SCHEMA)
    batch: list[document_writer.Added] = []
    for added in _passages(connection):
        batch.append(added)
        if len(batch) == _BATCH:
            document_writer.insert(connection, batch)
            batch.clear()
    if batch:
        document_writer.insert(connection, batch)
    connection.execute(f"DROP TABLE {_OLD}")


def _forget_removed(connection: sqlite3.Connection) -> None:
    """Do what the housekeeper had left to do."""
    connection.execute("DELETE FROM vectors WHERE passage IN (SELECT id FROM passages WHERE document IS NULL)")
    connection.execute("DELETE FROM passages WHERE document IS NULL")  # the trigger notes their words
    gone: Counter[str] = Counter()
    for texts in connection.execute("SELECT title, heading, text FROM vocabulary_gone"):
        gone.subtract(words_of(*texts))
    vocabulary.add(connection, gone)
    connection.execute(
        "UPDATE counters SET value = (SELECT coalesce(max(seq), 0) FROM tombstones) WHERE name = 'cleaned'"
    )


def _passages(connection: sqlite3.Connection) -> Iterator[document_writer.Added]:
    """In the order of their numbers."""
    document, content = 0, ""
    rows = connection.execute(
        "SELECT id, document, collection, place, start_line, end_line, title, heading, text, parts "
        f"FROM {_OLD} ORDER BY id"
    )
    for number, of, collection, place, start_line, end_line, title, heading, text, parts in rows:
        if of != document:
            (stored,) = connection.execute("SELECT content FROM documents WHERE id = ?", (of,)).fetchone()
            document, content = of, decompress(stored)
        start = locate(content, text, 0)
        found = (0, 0, text) if start is None else (start, len(text), None)
        yield document_writer.Added(
            PassageTexts(number, title, heading, text, parts),
            of,
            collection,
            document_writer.Place(place, start_line, end_line, *found),
        )
