"""Vectors of passages. A passage never changes its text, so a vector is made once and goes with its passage."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pointsman.archive.store.base import Mark, Pending, Space, StoredVector, VectorChanges
from pointsman.archive.store.sqlite.database import Database

# `through`: passages up to this number have their vector or are gone. Numbers only grow, so what waits is above it.
SCHEMA = """
CREATE TABLE spaces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    through INTEGER NOT NULL DEFAULT 0,
    in_use INTEGER NOT NULL DEFAULT 0,
    UNIQUE (provider, model, dimension)
);
CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL,
    passage INTEGER NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (passage, space)
);
"""
_BATCH = 4_096
_WAITING = "FROM passages WHERE id > ? AND document IS NOT NULL"


class SqliteVectors:
    """Fits `VectorStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def space(self) -> Space | None:
        with self._database.reading() as connection:
            found = connection.execute("SELECT provider, model, dimension FROM spaces WHERE in_use").fetchone()
        return Space(*found) if found else None

    def use(self, space: Space) -> None:
        with self._database.writing() as connection:
            number, _ = _registered(connection, space)
            connection.execute("UPDATE spaces SET in_use = (id = ?)", (number,))
            connection.execute("DELETE FROM vectors WHERE space <> ?", (number,))
            connection.execute("DELETE FROM spaces WHERE id <> ?", (number,))

    def pending(self, space: Space, limit: int) -> list[Pending]:
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT id, title, heading, text {_WAITING} ORDER BY id LIMIT ?", (_through(connection, space), limit)
            ).fetchall()
        return [Pending(*row) for row in rows]

    def waiting(self, space: Space) -> int:
        with self._database.reading() as connection:
            return _count_waiting(connection, _through(connection, space))

    def put(self, space: Space, vectors: Sequence[tuple[int, bytes]]) -> None:
        if not vectors:
            return
        with self._database.writing() as connection:
            number, through = _registered(connection, space)
            connection.executemany(
                "INSERT OR IGNORE INTO vectors (space, passage, vector) "
                "SELECT ?, id, ? FROM passages WHERE id = ? AND document IS NOT NULL",
                [(number, vector, passage) for passage, vector in vectors],
            )
            last = max(through, vectors[-1][0])
            connection.execute("UPDATE spaces SET through = ? WHERE id = ?", (last, number))
            if not connection.execute("SELECT 1 FROM spaces WHERE in_use").fetchone():
                connection.execute("UPDATE spaces SET in_use = 1 WHERE id = ?", (number,))

    def changes(self, mark: Mark | None) -> VectorChanges:
        with self._database.reading() as connection:
            return _changes(connection, mark)


def counts(connection: sqlite3.Connection) -> tuple[dict[str, int], int]:
    """Vectors by space, and the passages that wait for theirs in the one in use."""
    rows = connection.execute(
        "SELECT provider, model, dimension, count(passage) FROM spaces LEFT JOIN vectors ON space = spaces.id "
        "GROUP BY spaces.id"
    ).fetchall()
    through = connection.execute("SELECT through FROM spaces WHERE in_use").fetchone()
    by_space = {str(Space(*space)): count for *space, count in rows}
    return by_space, _count_waiting(connection, through[0] if through else 0)


def _changes(connection: sqlite3.Connection, mark: Mark | None) -> VectorChanges:
    used = connection.execute("SELECT id, provider, model, dimension FROM spaces WHERE in_use").fetchone()
    first_kept, last_gone = connection.execute(
        "SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM tombstones"
    ).fetchone()
    if used is None:
        return VectorChanges(None, None, afresh=mark is not None, gone=(), came=())
    space = used[0]
    if mark is None or mark.space != space or mark.gone < first_kept - 1:
        gone: tuple[int, ...] = ()
        afresh, came = True, 0
    else:
        rows = connection.execute("SELECT passage FROM tombstones WHERE seq > ?", (mark.gone,)).fetchall()
        gone = tuple(number for (number,) in rows)
        afresh, came = False, mark.came
    rows = connection.execute(
        "SELECT seq, passage, document, collection, vector FROM vectors LEFT JOIN passages "
        "ON passages.id = passage WHERE seq > ? AND space = ? ORDER BY seq LIMIT ?",
        (came, space, _BATCH),
    ).fetchall()
    arrived = tuple(StoredVector(*row[1:]) for row in rows if row[2] is not None)
    reached = Mark(space, rows[-1][0] if rows else came, last_gone)
    return VectorChanges(Space(*used[1:]), reached, afresh, gone, arrived, more=len(rows) == _BATCH)


def _registered(connection: sqlite3.Connection, space: Space) -> tuple[int, int]:
    """Its number and how far it has come."""
    values = (space.provider, space.model, space.dimension)
    connection.execute("INSERT OR IGNORE INTO spaces (provider, model, dimension) VALUES (?, ?, ?)", values)
    number, through = connection.execute(
        "SELECT id, through FROM spaces WHERE provider = ? AND model = ? AND dimension = ?", values
    ).fetchone()
    return number, through


def _through(connection: sqlite3.Connection, space: Space) -> int:
    found = connection.execute(
        "SELECT through FROM spaces WHERE provider = ? AND model = ? AND dimension = ?",
        (space.provider, space.model, space.dimension),
    ).fetchone()
    return int(found[0]) if found else 0


def _count_waiting(connection: sqlite3.Connection, through: int) -> int:
    (waiting,) = connection.execute(f"SELECT count(*) {_WAITING}", (through,)).fetchone()
    return int(waiting)
