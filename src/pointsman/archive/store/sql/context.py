"""Project context: items with their vectors, and the files read most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pointsman.archive.model.context import Access, ContextItem, ItemFilter
from pointsman.archive.model.query import Query
from pointsman.archive.store.context import ContextStats, ItemVector
from pointsman.archive.store.sql.database import Connection, Database, placeholders
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
CREATE TABLE file_accesses (
    root TEXT NOT NULL, path TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY (root, path)
) WITHOUT ROWID;
CREATE INDEX file_accesses_by_time ON file_accesses (last);
"""

_ITEM = "id, source, type, title, content, date, module, session, path"


class ItemRanking(Protocol):
    def __call__(
        self, connection: Connection, query: Query, words: Sequence[str], item_filter: ItemFilter, limit: int
    ) -> list[tuple[int, float]]:
        """Rows that have some of `words`, best first, with their BM25 score."""
        ...


class SqlContext:
    """Fits `ContextStore`."""

    def __init__(self, database: Database, ranking: ItemRanking) -> None:
        self._database = database
        self._rank = ranking

    def replace(self, origin: str, digest: str, items: Sequence[ContextItem]) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM context_items WHERE origin = ?", (origin,))
            for item in items:
                _insert(connection, origin, item)
            connection.execute(
                "INSERT INTO context_origins VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET digest = excluded.digest",
                (origin, digest),
            )
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

    def by_origin(self) -> dict[str, list[ContextItem]]:
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT origin, {_ITEM} FROM context_items ORDER BY row").fetchall()
        items: dict[str, list[ContextItem]] = {}
        for origin, *item in rows:
            items.setdefault(origin, []).append(ContextItem(*item))
        return items

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
            return self._rank(connection, query, words, item_filter, limit)

    def items(self, rows: Sequence[int]) -> dict[int, ContextItem]:
        with self._database.reading() as connection:
            found = connection.execute(
                f"SELECT row, {_ITEM} FROM context_items WHERE row IN ({placeholders(rows)})", tuple(rows)
            )
            return {row: ContextItem(*rest) for row, *rest in found}

    def newest(self, item_filter: ItemFilter, limit: int) -> list[ContextItem]:
        where, values = passing(item_filter)
        with self._database.reading() as connection:
            found = connection.execute(
                f"SELECT {_ITEM} FROM context_items WHERE {where} ORDER BY date DESC, row DESC LIMIT ?",
                (*values, limit),
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
                "SELECT row, title || '\n' || content FROM context_items "
                "WHERE space IS NULL OR space <> ? ORDER BY row LIMIT ?",
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
                "INSERT INTO file_accesses VALUES (?, ?, ?, ?) ON CONFLICT (root, path) DO UPDATE SET "
                "count = file_accesses.count + excluded.count, "
                "last = CASE WHEN file_accesses.last > excluded.last THEN file_accesses.last ELSE excluded.last END",
                [(one.root, one.path, one.count, one.last) for one in accesses],
            )
            connection.execute(
                "DELETE FROM file_accesses WHERE (root, path) IN"
                " (SELECT root, path FROM file_accesses ORDER BY last DESC LIMIT 1000000000 OFFSET ?)",
                (MOST_ACCESSES,),
            )

    def accesses(self, most: int) -> list[Access]:
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT root, path, count, last FROM file_accesses ORDER BY last DESC LIMIT ?", (most,)
            )
            return [Access(*access) for access in found]


def passing(item_filter: ItemFilter) -> tuple[str, tuple[str, ...]]:
    """A condition on `context_items`, and the values to bind."""
    clauses, values = ["true"], []
    if item_filter.type is not None:
        clauses.append("context_items.type = ?")
        values.append(item_filter.type)
    if item_filter.module is not None:
        clauses.append("lower(context_items.module) = lower(?)")
        values.append(item_filter.module)
    return " AND ".join(clauses), tuple(values)


def _insert(connection: Connection, origin: str, item: ContextItem) -> None:
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


def _next_generation(connection: Connection) -> None:
    connection.execute("UPDATE context_state SET generation = generation + 1")
