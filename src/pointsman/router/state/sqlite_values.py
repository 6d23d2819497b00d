"""The key-value store of one gateway: a file in the state folder, created by the first value."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pointsman.core.model import WallClock
from pointsman.core.sqlite import enable_wal, write_transaction
from pointsman.router.state.key_values import ABSENT, Change, Entry, StateAwayError, check

FILE: Final = "values.db"
_BUSY_S: Final = 2.0
_CHECK_UP_TO_BYTES: Final = 67_108_864  # checking a larger file at every start takes too long
_VERSION: Final = 1
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS key_values (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,
        expires REAL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS versions (last INTEGER NOT NULL);
    INSERT INTO versions SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM versions);
"""
_LIVES: Final = "(expires IS NULL OR expires > :now)"


class SqliteKeyValues:
    """Fits `KeyValues`. Threads and processes share the file."""

    def __init__(self, state_dir: Path, clock: WallClock = time.time) -> None:
        self._path = state_dir / FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> Entry | None:
        if self._connection is None and not self._path.exists():
            return None
        with self._opened() as connection:
            asked = {"key": key, "now": self._clock()}
            query = f"SELECT value, version FROM key_values WHERE key = :key AND {_LIVES}"  # noqa: S608
            row = connection.execute(query, asked).fetchone()
        return Entry(*row) if row else None

    def put(self, key: str, value: bytes, *, version: int | None = None, life_s: float | None = None) -> int | None:
        check(key, value)
        now = self._clock()
        with self._opened() as connection, write_transaction(connection):
            asked = {"key": key, "now": now}
            query = f"SELECT version FROM key_values WHERE key = :key AND {_LIVES}"  # noqa: S608
            row = connection.execute(query, asked).fetchone()
            if version is not None and version != (row[0] if row else ABSENT):
                return None
            connection.execute("DELETE FROM key_values WHERE expires <= ?", (now,))
            (fresh,) = connection.execute("UPDATE versions SET last = last + 1 RETURNING last").fetchone()
            connection.execute(
                "INSERT OR REPLACE INTO key_values VALUES (?, ?, ?, ?)",
                (key, value, fresh, None if life_s is None else now + life_s),
            )
            return int(fresh)

    def put_all(self, values: Mapping[str, bytes]) -> None:
        for key, value in values.items():
            check(key, value)
        with self._opened() as connection, write_transaction(connection):
            (fresh,) = connection.execute(
                "UPDATE versions SET last = last + ? RETURNING last", (len(values),)
            ).fetchone()
            rows = [(key, value, fresh - number) for number, (key, value) in enumerate(values.items())]
            connection.executemany("INSERT OR REPLACE INTO key_values VALUES (?, ?, ?, NULL)", rows)

    def change(self, keys: Sequence[str], change: Change) -> None:
        now = self._clock()
        with self._opened() as connection, write_transaction(connection):
            query = f"SELECT value FROM key_values WHERE key = :key AND {_LIVES}"  # noqa: S608
            rows = {key: connection.execute(query, {"key": key, "now": now}).fetchone() for key in keys}
            wanted = change(now, {key: row[0] for key, row in rows.items() if row})
            for key, (value, _) in wanted.items():
                check(key, value)
            connection.execute("DELETE FROM key_values WHERE expires <= ?", (now,))
            (fresh,) = connection.execute("UPDATE versions SET last = last + 1 RETURNING last").fetchone()
            connection.executemany(
                "INSERT OR REPLACE INTO key_values VALUES (?, ?, ?, ?)",
                [(key, value, fresh, now + life_s) for key, (value, life_s) in wanted.items()],
            )

    def delete(self, key: str, *, version: int | None = None) -> bool:
        with self._opened() as connection, write_transaction(connection):
            asked = {"key": key, "now": self._clock(), "version": version}
            same = "(:version IS NULL OR version = :version)"
            statement = f"DELETE FROM key_values WHERE key = :key AND {same} AND {_LIVES}"  # noqa: S608
            return connection.execute(statement, asked).rowcount > 0

    def list(self, prefix: str) -> dict[str, Entry]:
        if self._connection is None and not self._path.exists():
            return {}
        with self._opened() as connection:
            asked = {"prefix": prefix, "size": len(prefix), "now": self._clock()}
            query = f"""SELECT key, value, version FROM key_values
                WHERE key >= :prefix AND substr(key, 1, :size) = :prefix AND {_LIVES} ORDER BY key"""  # noqa: S608
            rows = connection.execute(query, asked).fetchall()
        return {key: Entry(value, version) for key, value, version in rows}

    def dump(self) -> Sequence[tuple[str, bytes, float | None]]:
        if self._connection is None and not self._path.exists():
            return []
        with self._opened() as connection:
            query = f"SELECT key, value, expires - :now FROM key_values WHERE {_LIVES} ORDER BY key"  # noqa: S608
            return connection.execute(query, {"now": self._clock()}).fetchall()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StateAwayError(f"{self._path} cannot be used: {error}") from error

    def _open(self) -> sqlite3.Connection:
        # SQLite would apply the umask. A file that exists must not be opened here: to close it would release the locks
        # that other connections of this process have on it, and another process could remove their log.
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def set_aside_if_broken(state_dir: Path) -> str | None:
    """Rename a file that is no database any more, so that a new one can be made; return its new name.

    Raises StateAwayError: it cannot be renamed.
    """
    path = state_dir / FILE
    if not path.exists() or not _is_broken(path):
        return None
    aside = path.with_name(f"{FILE}.broken-{time.time_ns() // 1_000_000}")
    try:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise StateAwayError(f"{path} is damaged and cannot be renamed: {error.strerror}") from error
    return aside.name


def _is_broken(path: Path) -> bool:
    if not path.is_file():
        return False
    connection = sqlite3.connect(path, timeout=_BUSY_S)
    try:
        if path.stat().st_size > _CHECK_UP_TO_BYTES:
            connection.execute("PRAGMA schema_version")
            return False
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection) -> None:
    enable_wal(connection, _BUSY_S)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise sqlite3.DatabaseError("it was written by a newer Pointsman; upgrade this one")
    if version < _VERSION:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}; PRAGMA user_version = {_VERSION}; COMMIT")
