"""Vectors of passages in pgvector, and the search for the nearest by its HNSW index.

Each space has an index of its own, over the vectors of its dimension. A small space has none: comparing all of its
vectors is as fast, and exact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pointsman.archive.store.base import Near, Space, VectorFilter
from pointsman.archive.store.postgres.database import PostgresDatabase, Transaction
from pointsman.archive.store.postgres.halfvec import Halfvec, unpacked
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sql.vectors import SqlVectors, count_pending

if TYPE_CHECKING:
    from pointsman.archive.store.base import Vector

INDEXED_FROM = 5_000  # vectors
MOST_DIMENSIONS = 4_000  # that an index can have
MOST_PENDING = 1_000  # passages: while more of them wait, an index would only slow the vectors down
_M, _EF_CONSTRUCTION = 16, 64
_MEMORY = "256MB"  # for building an index

logger = logging.getLogger(__name__)


class PostgresVectors(SqlVectors):
    """Fits `VectorStore`."""

    def __init__(self, database: PostgresDatabase, wake_housekeeper: Callable[[], None]) -> None:
        super().__init__(database)
        self._wake_housekeeper = wake_housekeeper

    def put(self, space: Space, vectors: Sequence[tuple[int, bytes]]) -> None:
        super().put(space, vectors)
        self._wake_housekeeper()  # for `keep_index`

    _INSERT = (
        "INSERT INTO vectors (space, passage, document, collection, vector) "
        "SELECT ?, id, document, collection, ?::halfvec FROM passages WHERE id = ? AND document IS NOT NULL "
        "ON CONFLICT DO NOTHING"
    )

    def _stored(self, vector: bytes) -> object:
        return Halfvec(vector)

    def _loaded(self, value: bytes) -> bytes:
        return unpacked(value)


class PostgresVectorSearch:
    """Fits `VectorSearch`. Keeps nothing in memory."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def refresh(self) -> Space | None:
        with self._database.reading() as connection:
            used = _used(connection)
        return used[1] if used else None

    def nearest(self, vector: Vector, limit: int, wanted: VectorFilter) -> list[Near]:
        where, values = _condition(wanted)
        with self._database.reading() as connection:
            used = _used(connection)
            if used is None:
                return []
            number, space = used
            compared = f"vector::halfvec({space.dimension}) <=> ?::halfvec"
            bound = Halfvec(vector.astype("<f2").tobytes())
            rows = connection.execute(
                f"SELECT passage, {compared} FROM vectors WHERE space = {number}{where} ORDER BY {compared} LIMIT ?",
                (bound, *values, bound, limit),
            ).fetchall()
        near = [Near(passage, 1 - distance) for passage, distance in rows if not math.isnan(distance)]
        return sorted(near, key=lambda each: (-each.cosine, each.number))

    def cosines(self, vector: Vector, numbers: Iterable[int]) -> dict[int, float]:
        asked = list(numbers)
        with self._database.reading() as connection:
            used = _used(connection)
            if used is None or not asked:
                return {}
            rows = connection.execute(
                f"SELECT passage, vector <=> ?::halfvec FROM vectors WHERE space = {used[0]} AND passage = ANY(?)",
                (Halfvec(vector.astype("<f2").tobytes()), asked),
            ).fetchall()
        return {passage: 1 - distance for passage, distance in rows if not math.isnan(distance)}

    def centroid(self, numbers: Sequence[int]) -> Vector | None:
        import numpy as np

        from pointsman.providers.embeddings import unit

        with self._database.reading() as connection:
            used = _used(connection)
            if used is None or not numbers:
                return None
            rows = connection.execute(
                f"SELECT vector FROM vectors WHERE space = {used[0]} AND passage = ANY(?)", (list(numbers),)
            ).fetchall()
        if not rows:
            return None
        vectors = np.stack([np.frombuffer(unpacked(value), "<f2").astype(np.float32) for (value,) in rows])
        direction: Vector = unit(vectors.sum(axis=0, keepdims=True))[0]
        return direction if direction.any() else None


def keep_index(database: PostgresDatabase) -> None:
    """Build the index of the space in use, if it has become large and has none. Writers go on meanwhile."""
    with database.reading() as connection:
        used = _used(connection)
        if used is None or used[1].dimension > MOST_DIMENSIONS:
            return
        number, space = used
        name = f"vectors_nearest_{number}"
        built = connection.execute(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(?)", (f'"{database.schema}".{name}',)
        ).fetchone()
        if built == (True,) or count_pending(connection, number) > MOST_PENDING:
            return
        (size,) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM vectors WHERE space = {number} LIMIT {INDEXED_FROM}) AS found"
        ).fetchone()
    if size < INDEXED_FROM:
        return
    with database.turn("index of vectors") as mine, database.outside_transactions() as connection:
        if not mine:
            return
        try:
            connection.execute("SET statement_timeout = 0")
            connection.execute(f"SET maintenance_work_mem = '{_MEMORY}'")
            connection.execute(f"DROP INDEX IF EXISTS {name}")  # one whose build was interrupted
            connection.execute(
                f"CREATE INDEX CONCURRENTLY {name} ON vectors USING hnsw "
                f"((vector::halfvec({space.dimension})) halfvec_cosine_ops) "
                f"WITH (m = {_M}, ef_construction = {_EF_CONSTRUCTION}) WHERE space = {number}"
            )
            connection.execute("ANALYZE vectors")
            _drop_others(connection, name)
        finally:
            if not connection.closed:
                connection.execute("RESET statement_timeout")
                connection.execute("RESET maintenance_work_mem")
    logger.info("built the index of the vectors of %s", space)


def _drop_others(connection: Connection, kept: str) -> None:
    """Of spaces that are gone."""
    rows = connection.execute(
        "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'vectors'"
    ).fetchall()
    for (name,) in rows:
        if name.startswith("vectors_nearest_") and name != kept:
            connection.execute(f"DROP INDEX {name}")


def _used(connection: Transaction) -> tuple[int, Space] | None:
    if "space" not in connection.memo:
        found = connection.execute("SELECT id, provider, model, dimension FROM spaces WHERE in_use = 1").fetchone()
        connection.memo["space"] = (int(found[0]), Space(*found[1:])) if found else None
    used: tuple[int, Space] | None = connection.memo["space"]
    return used


def _condition(wanted: VectorFilter) -> tuple[str, list[Any]]:
    where, values = "", []
    for column, numbers in (
        ("collection", wanted.scope.collections),
        ("document", wanted.scope.documents),
        ("passage", wanted.only),
    ):
        if numbers is not None:
            where += f" AND {column} = ANY(?)"
            values.append(list(numbers))
    if wanted.never:
        where += " AND NOT passage = ANY(?)"
        values.append(list(wanted.never))
    return where, values
