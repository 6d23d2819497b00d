"""Keeps what was computed for tools on disk, by the hash of what it was made from, in a SQLite file of bounded size.

The file is only a cache. If it is corrupt, it is deleted; if it cannot be used, everything is computed again after a
restart. Several processes may share it. All methods wait for the disk, so they belong in a thread.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

MAX_BYTES = 67_108_864
_TRIM_TO = 0.9  # of the limit, so that not every write has to delete
_CHECKSUM_BYTES = 8
_BUSY_S = 2.0
_AT_ONCE = 500  # parameters of one statement
_DAY_S = 86_400
_SCHEMA = "CREATE TABLE IF NOT EXISTS entries (digest BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL)"
_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: another schema

logger = logging.getLogger(__name__)


class DiskCache:
    """Beyond `max_bytes` or `most` values, those that were not used for the longest time are deleted."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = MAX_BYTES,
        most: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._most = most
        self._clock = clock
        self._failed = False
        self._lock = threading.Lock()  # one thread at a time: others would only wait for the file

    @property
    def is_new(self) -> bool:
        """Whether nothing can be found, because there is no file yet."""
        return not self._path.exists()

    def get(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those of the values that are there, as they were put: damaged ones are left out."""
        found: dict[bytes, bytes] = {}
        with self._opened() as database:
            for start in range(0, len(digests), _AT_ONCE):
                found |= _select(database, digests[start : start + _AT_ONCE], self._today())
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Write all of them or none."""
        today = self._today()
        rows = ((digest, _checksum(digest, value) + value, today) for digest, value in values.items())
        with self._opened() as database:
            database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
            too_many = self._too_many(database)
            if too_many > 0:
                oldest = "SELECT digest FROM entries ORDER BY used, rowid LIMIT ?"
                database.execute(f"DELETE FROM entries WHERE digest IN ({oldest})", (too_many,))  # noqa: S608

    def _too_many(self, database: sqlite3.Connection) -> int:
        (count,) = database.execute("SELECT count(*) FROM entries").fetchone()
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        used = (pages - free) * size
        over = count * (1 - _TRIM_TO * self._max_bytes / used) if used > self._max_bytes else 0
        return max(int(over), 0 if self._most is None else count - self._most)

    def _today(self) -> int:
        return int(self._clock() / _DAY_S)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A transaction. If the file cannot be used, it is logged once and the rest of the block is skipped."""
        with self._lock:
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
            logger.warning("%s cannot be used (%s): its content will be computed again", self._path, error)

    def _delete(self, error: Exception) -> None:
        logger.warning("%s is corrupt (%s); its content is computed again", self._path, error)
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
    database.execute("PRAGMA synchronous = NORMAL")  # what a power failure damages is found, and computed again
    database.execute(_SCHEMA)
    database.execute("SELECT digest, value, used FROM entries LIMIT 1")
    return database


def _select(database: sqlite3.Connection, digests: Sequence[bytes], today: int) -> dict[bytes, bytes]:
    places = ", ".join("?" * len(digests))
    select = f"SELECT digest, value, used FROM entries WHERE digest IN ({places})"  # noqa: S608
    found: dict[bytes, bytes] = {}
    older: list[tuple[int, bytes]] = []
    for digest, data, used in database.execute(select, digests):
        value = _checked(digest, data)
        if value is not None:
            found[digest] = value
        if used != today:
            older.append((today, digest))
    if older:
        database.executemany("UPDATE entries SET used = ? WHERE digest = ?", older)
    return found


def _checked(digest: bytes, data: object) -> bytes | None:
    if not isinstance(data, bytes):
        return None
    checksum, value = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    return value if checksum == _checksum(digest, value) else None


def _checksum(digest: bytes, value: bytes) -> bytes:
    return blake2b(value, key=digest, digest_size=_CHECKSUM_BYTES).digest()


def _is_unusable(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNUSABLE
