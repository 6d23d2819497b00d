"""Vectors of passages in pgvector, and the search for the nearest by its HNSW index where they are many.

The archive holds vectors in memory as long as they take little, which is faster and needs no index. Beyond, the
server finds those whose signs differ least from the query's, by an index over one bit for each number, and compares
these in full: an index over the numbers themselves would take more space than the vectors.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pointsman.archive.store.base import Near, Space, VectorFilter
from pointsman.archive.store.postgres.database import PostgresDatabase
from pointsman.archive.store.postgres.halfvec import Halfvec, unpacked
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sql.state import read_state
from pointsman.archive.store.sql.vectors import SqlVectors, count_pending

if TYPE_CHECKING:
    from pointsman.archive.store.base import Vector

MEMORY_BYTES = 256_000_000
"""How much the vectors may take in the memory of each archive: a quarter of a million of 256 numbers."""
LIKELY = 800  # vectors that are compared in full; `hnsw.ef_search` is at most 1,000
MOST_DIMENSIONS = 64_000  # that an index of bits can have
MOST_PENDING = 1_000  # passages: while more of them wait, an index would only slow the vectors down
_M, _EF_CONSTRUCTION = 8, 128  # 16 takes twice the time, and finds 3 in a thousand more of the ten nearest
_MEMORY = "256MB"  # for building an index
_INDEX, _OLDER_INDEX = "vectors_signs_", "vectors_nearest_"  # with the number of the space
_RECOUNTED = 1.1  # times as many vectors were written: count those that are left

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
    """Fits `LargeVectorSearch`. Keeps nothing in memory."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._counted = _Counted(0, 0, 0)

    def needed(self) -> bool:
        with self._database.reading() as connection:
            state = read_state(connection)
            if state.used is None:
                return False
            number, space = state.used
            if _bytes(state.last_vector, space) <= MEMORY_BYTES:  # at most so many: no need to count them
                return False
            counted = self._counted
            if counted.space != number or state.last_vector > counted.last * _RECOUNTED:
                counted = self._counted = _Counted(number, state.last_vector, _count(connection, number))
        return _bytes(counted.vectors + state.last_vector - counted.last, space) > MEMORY_BYTES

    def refresh(self) -> Space | None:
        with self._database.reading() as connection:
            used = read_state(connection).used
        return used[1] if used else None

    def nearest(self, vector: Vector, limit: int, wanted: VectorFilter) -> list[Near]:
        where, values = _condition(wanted)
        with self._database.reading() as connection:
            used = read_state(connection).used
            if used is None:
                return []
            number, space = used
            bound = Halfvec(vector.astype("<f2").tobytes())
            rows = connection.execute(
                f"SELECT passage, vector <=> ?::halfvec FROM (SELECT passage, vector FROM vectors "
                f"WHERE space = {number}{where} ORDER BY {_signs('vector', space)} <~> {_signs('?::halfvec', space)} "
                f"LIMIT {max(LIKELY, 2 * limit)}) AS likely ORDER BY 2 LIMIT ?",
                (bound, *values, bound, limit),
            ).fetchall()
        near = [Near(passage, 1 - distance) for passage, distance in rows if not math.isnan(distance)]
        return sorted(near, key=lambda each: (-each.cosine, each.number))

    def cosines(self, vector: Vector, numbers: Iterable[int]) -> dict[int, float]:
        asked = list(numbers)
        with self._database.reading() as connection:
            used = read_state(connection).used
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
            used = read_state(connection).used
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


class _Counted(NamedTuple):
    """The vectors of a space, when `last` was the last that had been written."""

    space: int
    last: int
    vectors: int


def keep_index(database: PostgresDatabase, search: PostgresVectorSearch) -> None:
    """Build the index of the space in use, if it is needed and missing, and drop others. Writers go on meanwhile."""
    with database.reading() as connection:
        used = read_state(connection).used
        wanted = f"{_INDEX}{used[0]}" if used and search.needed() and used[1].dimension <= MOST_DIMENSIONS else None
        present = _indexes(connection)
        waiting = count_pending(connection, used[0]) if wanted and used else 0
    if wanted and used and not present.get(wanted) and waiting <= MOST_PENDING:
        _build_index(database, wanted, *used)
    for name in present.keys() - {wanted}:
        with database.outside_transactions() as connection:
            connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def _build_index(database: PostgresDatabase, name: str, number: int, space: Space) -> None:
    with database.turn("index of vectors") as mine, database.outside_transactions() as connection:
        if not mine:
            return
        try:
            connection.execute("SET statement_timeout = 0")
            connection.execute(f"SET maintenance_work_mem = '{_MEMORY}'")
            connection.execute(f"DROP INDEX IF EXISTS {name}")  # one whose build was interrupted
            connection.execute(
                f"CREATE INDEX CONCURRENTLY {name} ON vectors USING hnsw (({_signs('vector', space)}) bit_hamming_ops) "
                f"WITH (m = {_M}, ef_construction = {_EF_CONSTRUCTION}) WHERE space = {number}"
            )
            connection.execute("ANALYZE vectors")
        finally:
            if not connection.closed:
                connection.execute("RESET statement_timeout")
                connection.execute("RESET maintenance_work_mem")
    logger.info("built the index of the vectors of %s", space)


def _indexes(connection: Connection) -> dict[str, bool]:
    """The indexes for searching, by name, and whether each is complete. Also those that an older version builds."""
    rows = connection.execute(
        "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = 'vectors'::regclass AND (starts_with(relname, ?) OR starts_with(relname, ?))",
        (_INDEX, _OLDER_INDEX),
    ).fetchall()
    return dict(rows)


def _signs(vector: str, space: Space) -> str:
    return f"binary_quantize({vector})::bit({space.dimension})"


def _count(connection: Connection, space: int) -> int:
    (count,) = connection.execute("SELECT count(*) FROM vectors WHERE space = ?", (space,)).fetchone()
    return int(count)


def _bytes(vectors: int, space: Space) -> int:
    return vectors * 4 * space.dimension  # as the archive computes with them


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
