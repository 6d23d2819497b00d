"""Project context in SQLite: items with their words and vectors, and the files read most."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from pointsman.archive.model.context import Access, ContextItem, ItemFilter
from pointsman.archive.model.query import Query
from pointsman.archive.store.context import ContextStats, ItemVector
from pointsman.archive.store.sqlite.database import Database, placeholders
from pointsman.archive.store.sqlite.query_sql import with_any
from pointsman.archive.text.words import identifier_parts
from pointsman.providers.text import STOP_WORDS

ADDED = "added"  # the origin of items that were added by hand
MOST_ACCESSES = 20_000  # files; the least recently read are evicted

SCHEMA = """
CREATE TABLE context_state (generation INTEGER NOT NULL);
INSERT INTO context_state VALUES (0);
CREATE TABLE context_origins (name TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE context_items (
    row INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    type TEXT NOT NULL,
    title TEXT NOT NULL,
    content TEXT NOT NULL,
    module TEXT,
    session TEXT,
    date TEXT NOT NULL,
    path TEXT,
    parts TEXT,
    space TEXT,
    vector BLOB
);
CREATE INDEX context_items_by_origin ON context_items (origin);
CREATE INDEX context_items_by_source ON context_items (source);
CREATE INDEX context_items_by_space ON context_items (space);
CREATE VIRTUAL TABLE context_words USING fts5 (
    title, content, module, parts,
    content = 'context_items', content_rowid = 'row', tokenize = 'porter unicode61'
);
CREATE TRIGGER context_item_comes AFTER INSERT ON context_items BEGIN
    INSERT INTO context_words (rowid, title, content, module, parts)
    VALUES (new.row, new.title, new.content, new.module, new.parts);
END;
CREATE TRIGGER context_item_goes AFTER DELETE ON context_items BEGIN
    INSERT INTO context_words (context_words, rowid, title, content, module, parts)
    VALUES ('delete', old.row, old.title, old.content, old.module, old.parts);
END;
CREATE TABLE file_accesses (
    root TEXT NOT NULL, path TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY (root, path)
) WITHOUT ROWID;
CREATE INDEX file_accesses_by_time ON file_accesses (last);
"""

_PASSES = (
    "(:type IS NULL OR context_items.type = :type) AND "
    "(:module IS NULL OR lower(context_items.module) = lower(:module))"
)
_ITEM = "id, source, type, title, content, date, module, session, path"


class SqliteContext:
    """Fits `ContextStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def replace(self, origin: str, digest: str, items: Sequence[ContextItem]) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM context_items WHERE origin = ?", (origin,))
            for item in items:
                _insert(connection, origin, item)
            connection.execute("INSERT OR REPLACE INTO context_origins VALUES (?, ?)", (origin, digest))
            _next_generation(connection)

    def add(self, item: ContextItem) -> None:
        with self._database.writing() as connection:
            _insert(connection, ADDED, item)
            _next_generation(connection)

    def forget(self, origins: Iterable[str]) -> None:
        with self._database.writing() as connection:
            for origin in origins:
                connection.execute("DELETE FROM context_items WHERE origin = ?", (origin,))
                connection.execute("DELETE FROM context_origins WHERE name = ?", (origin,))
            _next_generation(connection)

    def remove(self, item_id: str) -> bool:
        with self._database.writing() as connection:
            gone = connection.execute("DELETE FROM context_items WHERE id = ?", (item_id,)).rowcount
            _next_generation(connection)
        return gone > 0

    def digests(self, prefix: str) -> dict[str, str]:
        with self._database.reading() as connection:
            return dict(
                connection.execute(
                    "SELECT name, digest FROM context_origins WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
                ).fetchall()
            )

    def stats(self, space: str) -> ContextStats:
        with self._database.reading() as connection:
            by_source = dict(
                connection.execute("SELECT source, count(*) FROM context_items GROUP BY source").fetchall()
            )
            (embedded,) = connection.execute("SELECT count(*) FROM context_items WHERE space = ?", (space,)).fetchone()
        return ContextStats(sum(by_source.values()), embedded, by_source)

    def generation(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT generation FROM context_state").fetchone()[0])

    def find(self, query: Query, item_filter: ItemFilter, limit: int) -> list[tuple[int, float]]:
        if query.empty:
            return []
        words = tuple(word for word in query.words if word not in STOP_WORDS) or query.words
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT row, -bm25(context_words, 2.0, 1.0, 1.0, 0.5) AS score FROM context_words "
                "JOIN context_items ON row = context_words.rowid "
                f"WHERE context_words MATCH :match AND {_PASSES} ORDER BY score DESC, row LIMIT :limit",
                {
                    "match": with_any(query, words),
                    "type": item_filter.type,
                    "module": item_filter.module,
                    "limit": limit,
                },
            )
            return [(row, score) for row, score in found]

    def items(self, rows: Sequence[int]) -> dict[int, ContextItem]:
        with self._database.reading() as connection:
            found = connection.execute(
                f"SELECT row, {_ITEM} FROM context_items WHERE row IN ({placeholders(rows)})", tuple(rows)
            )
            return {row: ContextItem(*rest) for row, *rest in found}

    def newest(self, item_filter: ItemFilter, limit: int) -> list[ContextItem]:
        with self._database.reading() as connection:
            found = connection.execute(
                f"SELECT {_ITEM} FROM context_items WHERE {_PASSES} ORDER BY date DESC, row DESC LIMIT :limit",
                {"type": item_filter.type, "module": item_filter.module, "limit": limit},
            )
            return [ContextItem(*item) for item in found]

    def vectors(self, space: str) -> list[ItemVector]:
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT row, type, module, vector FROM context_items WHERE space = ? ORDER BY row", (space,)
            )
            return [ItemVector(*known) for known in found]

    def without_vector(self, space: str, limit: int) -> list[tuple[int, str]]:
        with self._database.reading() as connection:
            return connection.execute(
                "SELECT row, title || char(10) || content FROM context_items WHERE space IS NOT ? ORDER BY row LIMIT ?",
                (space, limit),
            ).fetchall()

    def put_vectors(self, space: str, vectors: Sequence[tuple[int, bytes]]) -> None:
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE context_items SET space = ?, vector = ? WHERE row = ?",
                [(space, vector, row) for row, vector in vectors],
            )
            _next_generation(connection)

    def record_accesses(self, accesses: Sequence[Access]) -> None:
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT INTO file_accesses VALUES (:root, :path, :count, :last) ON CONFLICT (root, path)"
                " DO UPDATE SET count = count + excluded.count, last = max(last, excluded.last)",
                [{"root": one.root, "path": one.path, "count": one.count, "last": one.last} for one in accesses],
            )
            connection.execute(
                "DELETE FROM file_accesses WHERE (root, path) IN"
                " (SELECT root, path FROM file_accesses ORDER BY last DESC LIMIT -1 OFFSET ?)",
                (MOST_ACCESSES,),
            )

    def accesses(self, most: int) -> list[Access]:
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT root, path, count, last FROM file_accesses ORDER BY last DESC LIMIT ?", (most,)
            )
            return [Access(*access) for access in found]


def _insert(connection: sqlite3.Connection, origin: str, item: ContextItem) -> None:
    connection.execute("DELETE FROM context_items WHERE id = ?", (item.id,))
    connection.execute(
        "INSERT INTO context_items (origin, id, source, type, title, content, date, module, session, path, parts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            origin,
            item.id,
            item.source,
            item.type,
            item.title,
            item.content,
            item.date,
            item.module,
            item.session,
            item.path,
            identifier_parts(item.title, item.content),
        ),
    )


def _next_generation(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE context_state SET generation = generation + 1")
