"""The state database: SQLite in WAL mode, private to its owner, set aside when it is broken."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

FILE = "state.db"
BUSY_S = 2.0
SCHEMA_VERSION = 2
REPEATS_SINCE = 2  # the version that has the column `repeats`
_CHECK_UP_TO_BYTES = 67_108_864  # reading more than this at every start costs more than it finds
_COLUMNS = """
    seq INTEGER NOT NULL, run TEXT NOT NULL, time_ms INTEGER NOT NULL, request_id TEXT NOT NULL, kind TEXT NOT NULL,
    token TEXT, project TEXT, client TEXT NOT NULL, method TEXT NOT NULL, queries TEXT, tool_key TEXT, server_id TEXT,
    arguments TEXT, outcome TEXT, code TEXT, ms REAL, results INTEGER, bytes INTEGER, provider TEXT, fallback INTEGER,
    repeats INTEGER
"""
_SCHEMA = (
    f"CREATE TABLE audit ({_COLUMNS}, PRIMARY KEY (seq, run))",
    "CREATE INDEX audit_time ON audit (time_ms)",
    "CREATE INDEX audit_open ON audit (run) WHERE outcome IS NULL",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_COLUMN_NAMES = frozenset(column.split()[0] for column in _COLUMNS.split(","))
_SET_ASIDE = re.compile(re.escape(FILE) + r"\.broken-\d+")
_UPGRADE = ("ALTER TABLE audit ADD COLUMN repeats INTEGER", f"PRAGMA user_version = {SCHEMA_VERSION}")

logger = logging.getLogger(__name__)


class NewerSchemaError(Exception):
    """A later Pointsman wrote this database. It is left as it is."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"{path} was written by a newer Pointsman (schema {version}; this one knows {SCHEMA_VERSION}). "
            "Use that version, or another state folder."
        )


def open_database(path: Path, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open it for writing, and make it where it does not exist or is broken.

    Raises:
        sqlite3.Error: it is locked, or cannot be written.
        OSError: the folder cannot be written.
        NewerSchemaError: it is not ours to touch.
    """
    try:
        return _open(path, busy_s)
    except sqlite3.DatabaseError as error:
        if not is_broken(error):
            raise
        set_aside(path, error)
        return _open(path, busy_s)


def open_to_read(path: Path) -> sqlite3.Connection | None:
    """Open it for reading; None where there is no database yet. Raises sqlite3.Error and NewerSchemaError."""
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
            # A daemon was killed while it made the database. The first one to come takes back what is half done.
            return _open_to_read(f"{uri}?mode=rw", path)
        if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
            raise _unfinished(path) from error
        # A folder that we may not write has no place for the shared memory of WAL. Without a WAL file
        # nobody is writing, and the database can be read as it lies there.
        return _open_to_read(f"{uri}?mode=ro&immutable=1", path)


def is_broken(error: sqlite3.Error) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_unexpected(error: sqlite3.Error) -> bool:
    """Whether a statement did not fit the database, as when its table was dropped."""
    return _primary_code(error) == sqlite3.SQLITE_ERROR


def databases_set_aside(state_dir: Path) -> list[str]:
    """The names of those that are still there, oldest first. Raises nothing."""
    try:
        return sorted(name for name in os.listdir(state_dir) if _SET_ASIDE.fullmatch(name))
    except OSError:
        return []


def set_aside(path: Path, reason: Exception) -> None:
    """Rename a broken database with its companions, so that nothing is lost and a new one can be made."""
    aside = path.with_name(f"{path.name}.broken-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    logger.error("the state database is broken (%s) and was set aside as %s; a new one is opened", reason, aside)


def _open(path: Path, busy_s: float) -> sqlite3.Connection:
    if path.exists() and not path.is_file():
        raise _broken("it is not a file")
    # SQLite would create it as the umask says; the companions take over the mode of the file itself.
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only before the first table
    connection.execute("PRAGMA journal_mode = WAL")
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
        raise _broken("its table `audit` is gone" if missing == _COLUMN_NAMES else "its table `audit` lacks columns")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]  # another process may have been faster
        if version == 0:
            _run(connection, _SCHEMA)
        elif version < SCHEMA_VERSION and _columns(connection):
            _run(connection, _UPGRADE)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _run(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def _columns(connection: sqlite3.Connection) -> frozenset[str]:
    """Of the table `audit`; empty where there is none."""
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
        f"what a killed gateway left unfinished in {path} must be completed first, and this user may not write there. "
        "Run this as the user that runs the gateway, or on a copy of the state folder."
    )


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
