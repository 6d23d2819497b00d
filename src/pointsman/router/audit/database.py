"""The state database: SQLite in WAL mode, readable by its owner only, set aside when corrupt."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

from pointsman.core.sqlite import enable_wal, write_transaction

FILE = "state.db"
BUSY_S = 2.0
SCHEMA_VERSION = 4
ADDED_COLUMNS = {2: "repeats INTEGER", 3: "read_as TEXT", 4: "confirmed TEXT"}  # by the version that added them
_CHECK_UP_TO_BYTES = 67_108_864  # checking a larger file at every start takes too long
_COLUMNS = """
    seq INTEGER NOT NULL, run TEXT NOT NULL, time_ms INTEGER NOT NULL, request_id TEXT NOT NULL, kind TEXT NOT NULL,
    token TEXT, project TEXT, client TEXT NOT NULL, method TEXT NOT NULL, queries TEXT, tool_key TEXT, server_id TEXT,
    arguments TEXT, outcome TEXT, code TEXT, ms REAL, results INTEGER, bytes INTEGER, provider TEXT, fallback INTEGER,
    repeats INTEGER, read_as TEXT, confirmed TEXT
"""
_SCHEMA = (
    f"CREATE TABLE audit ({_COLUMNS}, PRIMARY KEY (seq, run))",
    "CREATE INDEX audit_time ON audit (time_ms)",
    "CREATE INDEX audit_open ON audit (run) WHERE outcome IS NULL",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

# Not a part of the version: another Pointsman reads the table with it or without it. Made at the first start with it.
_ADDED_INDEX = "CREATE INDEX IF NOT EXISTS audit_token ON audit (token, time_ms) WHERE token IS NOT NULL"

_COLUMN_NAMES = frozenset(column.split()[0] for column in _COLUMNS.split(","))
_SET_ASIDE = re.compile(re.escape(FILE) + r"\.broken-\d+")

logger = logging.getLogger(__name__)


class NewerSchemaError(Exception):
    """A newer Pointsman wrote this database; it is left unchanged."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"{path} was written by a newer Pointsman (schema {version}; this version supports {SCHEMA_VERSION}). "
            "Use that version, or choose another state folder."
        )


def open_database(path: Path, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open it for writing; create it if it is missing or corrupt.

    Raises:
        sqlite3.Error: it is locked, or cannot be written.
        OSError: the folder cannot be written.
        NewerSchemaError: a newer Pointsman wrote it.
    """
    try:
        return _open(path, busy_s)
    except sqlite3.DatabaseError as error:
        if not is_broken(error):
            raise
        set_aside(path, error)
        return _open(path, busy_s)


def open_to_read(path: Path) -> sqlite3.Connection | None:
    """Open it for reading; None if there is no database yet. Raises sqlite3.Error and NewerSchemaError."""
    if not path.exists():
        return None
    if not path.is_file():  # opening a FIFO would wait for a writer
        raise _broken("it is not a file")
    uri = path.absolute().as_uri()
    try:
        return _open_to_read(f"{uri}?mode=ro", path)
    except sqlite3.OperationalError as error:
        if _primary_code(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            # A daemon was killed while it created the database. Opening it for writing rolls that back.
            return _open_to_read(f"{uri}?mode=rw", path)
        if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
            raise _unfinished(path) from error
        # WAL's shared memory needs a writable folder. Without a WAL file there is no writer, so the database can be
        # read as immutable.
        return _open_to_read(f"{uri}?mode=ro&immutable=1", path)


def columns_after(version: int) -> list[str]:
    """Return the columns, with their types, that a database of that version does not have yet."""
    return [column for since, column in ADDED_COLUMNS.items() if since > version]


def is_broken(error: sqlite3.Error) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_unexpected(error: sqlite3.Error) -> bool:
    """Whether a statement does not fit the schema, for example because its table was dropped."""
    return _primary_code(error) == sqlite3.SQLITE_ERROR


def databases_set_aside(state_dir: Path) -> list[str]:
    """Return the file names of corrupt databases that still exist, oldest first. Never raises."""
    try:
        return sorted(name for name in os.listdir(state_dir) if _SET_ASIDE.fullmatch(name))
    except OSError:
        return []


def set_aside(path: Path, reason: Exception) -> None:
    """Rename a corrupt database and its WAL files, so that a new one can be created without losing it."""
    aside = path.with_name(f"{path.name}.broken-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    logger.error("the state database is corrupt (%s); renamed to %s, creating a new one", reason, aside)


def _open(path: Path, busy_s: float) -> sqlite3.Connection:
    if path.exists() and not path.is_file():
        raise _broken("it is not a file")
    # SQLite would apply the umask. The WAL files inherit the mode of this file.
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path, busy_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, busy_s: float) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has no effect after the first table
    enable_wal(connection, busy_s)
    connection.execute("PRAGMA synchronous = FULL")  # a segment is deleted once its rows are committed
    connection.execute("PRAGMA journal_size_limit = 4194304")
    if path.stat().st_size <= _CHECK_UP_TO_BYTES:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _broken(verdict)
    if _known_version(connection, path) < SCHEMA_VERSION:
        _create(connection)
    missing = _COLUMN_NAMES - _columns(connection)
    if missing:
        raise _broken("table `audit` is missing" if missing == _COLUMN_NAMES else "table `audit` lacks columns")
    connection.execute(_ADDED_INDEX)


def _create(connection: sqlite3.Connection) -> None:
    with write_transaction(connection):
        # Another process may have created it meanwhile.
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            _run(connection, _SCHEMA)
        elif version < SCHEMA_VERSION and _columns(connection):
            _run(connection, [f"ALTER TABLE audit ADD COLUMN {column}" for column in columns_after(version)])
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _run(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def _columns(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the columns of the table `audit`; empty if there is none."""
    return frozenset(column[1] for column in connection.execute("PRAGMA table_info(audit)"))


def _open_to_read(uri: str, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        _known_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _known_version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(path, version)
    return version


def _broken(verdict: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(verdict)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _unfinished(path: Path) -> sqlite3.OperationalError:
    return sqlite3.OperationalError(
        f"a killed gateway left an unfinished transaction in {path}, and this user has no permission to recover it. "
        "Run this command as the user that runs the gateway, or on a copy of the state folder."
    )


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
