"""Vectors of passages. The text of a passage never changes, so its vector is computed once and deleted with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pointsman.archive.store.base import PendingPassage, Space, StoredVector, VectorChanges, VectorCursor
from pointsman.archive.store.sql.database import Connection, Database, placeholders
from pointsman.archive.store.sql.passage_texts import PLACED, Texts
from pointsman.archive.store.sql.state import read_state

# `through`: passages up to this number have a vector or were removed. Numbers only grow, so pending ones are above it.
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
_PENDING = "FROM passages WHERE id > ? AND document IS NOT NULL"


class SqlVectors:
    """Fits `VectorStore`."""

    _INSERT = (
        "INSERT INTO vectors (space, passage, vector) "
        "SELECT ?, id, ? FROM passages WHERE id = ? AND document IS NOT NULL ON CONFLICT DO NOTHING"
    )

    def __init__(self, database: Database) -> None:
        self._database = database

    def space(self) -> Space | None:
        with self._database.reading() as connection:
            used = read_state(connection).used
        return used[1] if used else None

    def switch_to(self, space: Space) -> None:
        with self._database.writing() as connection:
            number, _ = _register(connection, space)
            connection.execute("UPDATE spaces SET in_use = CASE WHEN id = ? THEN 1 ELSE 0 END", (number,))
            connection.execute("DELETE FROM vectors WHERE space <> ?", (number,))
            connection.execute("DELETE FROM spaces WHERE id <> ?", (number,))

    def pending(self, space: Space, limit: int) -> list[PendingPassage]:
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT id, heading, {PLACED} {_PENDING} ORDER BY id LIMIT ?", (_through(connection, space), limit)
            ).fetchall()
            texts = Texts(connection)
            texts.load({row[2] for row in rows})
            pending = []
            for number, heading, *placed in rows:
                title, text = texts.of(*placed)
                pending.append(PendingPassage(number, title, heading, text))
        return pending

    def count_pending(self, space: Space) -> int:
        with self._database.reading() as connection:
            return _count_pending(connection, _through(connection, space))

    def put(self, space: Space, vectors: Sequence[tuple[int, bytes]]) -> None:
        if not vectors:
            return
        with self._database.writing() as connection:
            number, through = _register(connection, space)
            connection.executemany(
                self._INSERT, [(number, self._stored(vector), passage) for passage, vector in vectors]
            )
            last = max(through, vectors[-1][0])
            connection.execute("UPDATE spaces SET through = ? WHERE id = ?", (last, number))
            if not connection.execute("SELECT 1 FROM spaces WHERE in_use = 1").fetchone():
                connection.execute("UPDATE spaces SET in_use = 1 WHERE id = ?", (number,))

    def changes(self, cursor: VectorCursor | None) -> VectorChanges:
        with self._database.reading() as connection:
            return _changes(connection, self._database.identity(connection), cursor, self._loaded)

    def vectors_of(self, numbers: Sequence[int]) -> dict[int, bytes]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT passage, vector FROM vectors JOIN spaces ON spaces.id = space AND in_use = 1 "
                f"WHERE passage IN ({placeholders(numbers)}) ORDER BY passage",
                tuple(numbers),
            ).fetchall()
        return {number: self._loaded(vector) for number, vector in rows}

    def _stored(self, vector: bytes) -> object:
        """As the engine binds it."""
        return vector

    def _loaded(self, value: bytes) -> bytes:
        """What the engine returns, as it was given."""
        return value


def counts(connection: Connection) -> tuple[dict[str, int], int]:
    """The number of vectors by space, and of pending passages in the one in use."""
    rows = connection.execute(
        "SELECT provider, model, dimension, count(passage) FROM spaces LEFT JOIN vectors ON space = spaces.id "
        "GROUP BY spaces.id"
    ).fetchall()
    through = connection.execute("SELECT through FROM spaces WHERE in_use = 1").fetchone()
    by_space = {str(Space(*space)): count for *space, count in rows}
    return by_space, _count_pending(connection, through[0] if through else 0)


def count_pending(connection: Connection, space: int) -> int:
    (through,) = connection.execute("SELECT through FROM spaces WHERE id = ?", (space,)).fetchone()
    return _count_pending(connection, through)


def _changes(
    connection: Connection, store: object, cursor: VectorCursor | None, loaded: Callable[[bytes], bytes]
) -> VectorChanges:
    state = read_state(connection)
    if state.used is None:
        return VectorChanges(None, None, reset=cursor is not None, removed=(), added=())
    number, space = state.used
    if cursor is None or (cursor.store, cursor.space) != (store, number) or cursor.removed < state.first_tombstone - 1:
        removed: tuple[int, ...] = ()
        reset, after = True, 0
    else:
        removed = _removed(connection, cursor.removed) if cursor.removed < state.last_tombstone else ()
        reset, after = False, cursor.added
    start = max(after, state.first_vector - 1)
    end = max(after, min(start + _BATCH, state.last_vector))
    rows = _added(connection, number, start, end) if start < end else []
    added = tuple(StoredVector(*row[:3], loaded(row[3])) for row in rows if row[1] is not None)
    reached = VectorCursor(number, end, state.last_tombstone, store)
    return VectorChanges(space, reached, reset, removed, added, more=end < state.last_vector)


def _removed(connection: Connection, after: int) -> tuple[int, ...]:
    rows = connection.execute("SELECT passage FROM tombstones WHERE seq > ?", (after,)).fetchall()
    return tuple(number for (number,) in rows)


def _added(connection: Connection, space: int, start: int, end: int) -> list[tuple[int, int, int, bytes]]:
    """Of a range of numbers: it is found fast, also where an engine has no statistics yet."""
    return connection.execute(
        "SELECT passage, passages.document, passages.collection, vector FROM vectors JOIN passages "
        "ON passages.id = passage WHERE seq > ? AND seq <= ? AND space = ? ORDER BY seq",
        (start, end, space),
    ).fetchall()


def _register(connection: Connection, space: Space) -> tuple[int, int]:
    """Insert the space if it is new; its number, and how far its vectors have come."""
    values = (space.provider, space.model, space.dimension)
    connection.execute(
        "INSERT INTO spaces (provider, model, dimension) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", values
    )
    number, through = connection.execute(
        "SELECT id, through FROM spaces WHERE provider = ? AND model = ? AND dimension = ?", values
    ).fetchone()
    return number, through


def _through(connection: Connection, space: Space) -> int:
    found = connection.execute(
        "SELECT through FROM spaces WHERE provider = ? AND model = ? AND dimension = ?",
        (space.provider, space.model, space.dimension),
    ).fetchone()
    return int(found[0]) if found else 0


def _count_pending(connection: Connection, through: int) -> int:
    (waiting,) = connection.execute(f"SELECT count(*) {_PENDING}", (through,)).fetchone()
    return int(waiting)
