"""One SQLite file, opened for many readers and one writer at a time. Readers never wait for the writer (WAL)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pointsman.archive.store.errors import StoreError, StoreFullError, StoreLockedError, StoreUnusableError
from pointsman.archive.store.sqlite.private_files import make_private
from pointsman.archive.store.sqlite.schema import Script, migrate

BUSY_S = 5.0
_CACHE_KIB = 16_384
_LOG_PAGES = 8_192  # 32 MB; usually the housekeeper empties the log before it is that long
_TRY_AGAIN_S = 0.02
_IDLE_READERS = 8  # connections kept for the next readers


class Database:
    """Thread-safe. A transaction is a `with` block: it ends with the block, and an exception takes it back.

    Raises:
        StoreError: in all its kinds, from opening and from both blocks.
    """

    def __init__(self, path: Path, versions: Sequence[Sequence[Script]], *, busy_s: float = BUSY_S) -> None:
        self.path = path
        self._versions = versions
        self._busy_s = busy_s
        self._writing = threading.Lock()
        self._guard = threading.Lock()  # of what follows
        self._idle: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        with self._told():
            self._writer = self._opened_for_writing()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view for the length of the block."""
        with self._told():
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                self._give_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All of the block, or nothing of it."""
        with self._told(), self._writing:
            self._look_again()
            if self._writer is None:
                self._writer = self._opened_for_writing()
            writer = self._writer
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield writer
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise

    @contextmanager
    def outside_transactions(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own, for what SQLite does in no transaction; nobody waits for it."""
        with self._told():
            connection = self._connected()
            try:
                yield connection
            finally:
                connection.close()

    def close(self) -> None:
        with self._writing, self._guard:
            for connection in (*self._idle, self._writer):
                if connection is not None:
                    connection.close()
            self._idle.clear()
            self._writer = None

    def _reader(self) -> sqlite3.Connection:
        self._look_again()
        with self._guard:
            if self._idle:
                return self._idle.pop()
        if self._writer is None:  # the file was taken away: a new one is made, with its tables
            with self._writing:
                self._writer = self._writer or self._opened_for_writing()
        return self._connected("PRAGMA query_only = ON")

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._guard:
            if len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()

    def _look_again(self) -> None:
        """A file that was removed or replaced behind our back lives on in open connections: they are let go."""
        if self._inode == _inode(self.path):
            return
        with self._guard:
            stale, self._idle, self._writer = self._idle, [], None
        for connection in stale:
            connection.close()

    def _opened_for_writing(self) -> sqlite3.Connection:
        make_private(self.path)
        connection = self._connected()
        self._write_ahead(connection)
        for pragma in (
            "PRAGMA synchronous = NORMAL",
            "PRAGMA secure_delete = OFF",  # some builds overwrite what is deleted with zeros: twice the writing
            f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}",
        ):
            connection.execute(pragma)
        migrate(connection, self._versions)
        self._inode = _inode(self.path)
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Two that make a new file at once are in each other's way, and here SQLite does not wait by itself."""
        end = time.monotonic() + self._busy_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                    raise
                threading.Event().wait(_TRY_AGAIN_S)
            else:
                return

    def _connected(self, *pragmas: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        for pragma in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA temp_store = MEMORY",
            *pragmas,
        ):
            connection.execute(pragma)
        return connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except StoreUnusableError as error:
            raise StoreUnusableError(f"The archive's store {self.path.name} {error}") from None
        except sqlite3.DatabaseError as error:
            raise _in_words(error, self.path.name) from error


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _in_words(error: sqlite3.DatabaseError, name: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLockedError(
            f"The archive's store {name} is being written by another process. Try again in a moment."
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(
            f"There is no room left for the archive's store {name}. Nothing was changed; free some space."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreUnusableError(
            f"The archive's store {name} is damaged or no database ({error}). "
            "Move it away and ingest again, or restore a copy."
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        return StoreUnusableError(
            f"The archive's store {name} cannot be used: {error}. Is its folder there and writable?"
        )
    return StoreError(f"The archive's store {name} refused: {error}.")
