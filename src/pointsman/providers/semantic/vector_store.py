"""Keeps the vectors of tools on disk, by the hash of their text and model, in a SQLite file of bounded size.

The file is a cache and holds no text. If it is corrupt, it is deleted; if it cannot be used, vectors are computed again
after a restart. All methods belong on one thread at a time.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.providers.semantic.encoder import DIMENSIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = "search-vectors.db"
MAX_VECTORS = 50_000  # about 50 MB
_BUSY_S = 2.0
_AT_ONCE = 500  # parameters of one statement
_DAY_S = 86_400
_LENGTHS = (0.9, 1.1)  # of a vector, rounding included
_SCHEMA = "CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, vector BLOB NOT NULL, used INTEGER NOT NULL)"
_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: another schema

logger = logging.getLogger(__name__)


class VectorStore:
    """Beyond `most` vectors, those that were not used for the longest time are deleted."""

    def __init__(self, path: Path, most: int = MAX_VECTORS, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._most = most
        self._clock = clock
        self._failed = False

    def get(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """Those of the vectors that are there."""
        found: dict[bytes, NDArray[np.float16]] = {}
        with self._opened() as database:
            for start in range(0, len(digests), _AT_ONCE):
                found |= _select(database, digests[start : start + _AT_ONCE], self._today())
        return found

    def put(self, vectors: Mapping[bytes, NDArray[np.float16]]) -> None:
        rows = [(digest, vector.tobytes(), self._today()) for digest, vector in vectors.items()]
        with self._opened() as database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            over = database.execute("SELECT count(*) FROM vectors").fetchone()[0] - self._most
            if over > 0:
                oldest = "SELECT digest FROM vectors ORDER BY used, rowid LIMIT ?"
                database.execute(f"DELETE FROM vectors WHERE digest IN ({oldest})", (over,))  # noqa: S608

    def _today(self) -> int:
        return int(self._clock() / _DAY_S)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A transaction. If the file cannot be used, it is logged once and the rest of the block is skipped."""
        try:
            database = self._open()
        except (sqlite3.Error, OSError) as error:
            self._report(error)
            database = _in_memory()
        try:
            with database:
                yield database
        except sqlite3.Error as error:
            self._report(error)
        finally:
            database.close()

    def _open(self) -> sqlite3.Connection:
        try:
            return _open(self._path)
        except sqlite3.DatabaseError as error:
            if not _is_unusable(error):
                raise
            self._delete(error)
            return _open(self._path)

    def _report(self, error: Exception) -> None:
        if isinstance(error, sqlite3.DatabaseError) and _is_unusable(error):
            self._delete(error)
        elif not self._failed:
            self._failed = True
            logger.warning("%s cannot be used (%s): vectors of tools will be computed again", self._path, error)

    def _delete(self, error: Exception) -> None:
        logger.warning("%s is corrupt (%s); the vectors of tools are computed again", self._path, error)
        for suffix in ("", "-journal"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()


def _open(path: Path) -> sqlite3.Connection:
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is not a file")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # SQLite would apply the umask
    database = sqlite3.connect(path, timeout=_BUSY_S)
    try:
        return _prepared(database)
    except BaseException:
        database.close()
        raise


def _in_memory() -> sqlite3.Connection:
    return _prepared(sqlite3.connect(":memory:"))


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute(_SCHEMA)
    database.execute("SELECT digest, vector, used FROM vectors LIMIT 1")
    return database


def _select(database: sqlite3.Connection, digests: Sequence[bytes], today: int) -> dict[bytes, NDArray[np.float16]]:
    places = ", ".join("?" * len(digests))
    rows = database.execute(f"SELECT digest, vector FROM vectors WHERE digest IN ({places})", digests)  # noqa: S608
    found = {digest: vector for digest, data in rows if (vector := _vector(data)) is not None}
    older = f"UPDATE vectors SET used = ? WHERE digest IN ({places}) AND used < ?"  # noqa: S608
    database.execute(older, (today, *digests, today))
    return found


def _vector(data: object) -> NDArray[np.float16] | None:
    """None for anything but a vector: a damaged one would spoil the scores."""
    import numpy as np

    if not isinstance(data, bytes) or len(data) != 2 * DIMENSIONS:
        return None
    vector = np.frombuffer(data, dtype=np.float16)
    length = float(np.linalg.norm(vector.astype(np.float32)))
    return vector if length == 0 or _LENGTHS[0] <= length <= _LENGTHS[1] else None


def _is_unusable(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNUSABLE
