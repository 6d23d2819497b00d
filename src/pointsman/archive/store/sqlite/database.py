"""One SQLite file, opened for many readers and one writer at a time. Readers never wait for the writer (WAL)."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pointsman.archive.store.errors import StoreError, StoreFullError, StoreLockedError, StoreUnusableError
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sqlite.migrations import Script, migrate
from pointsman.core.sqlite import enable_wal, write_transaction

BUSY_S = 5.0
_CACHE_KIB = 16_384
_LOG_PAGES = 8_192  # 32 MB; the housekeeper usually checkpoints the log before it grows that long
_IDLE_READERS = 8  # connections kept open for the next readers

_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
_COMPANIONS = ("-wal", "-shm", "-journal")


class _Connection(sqlite3.Connection):
    memo: dict[str, Any] | None = None  # of a view: what was read in it


class SqliteDatabase:
    """Fits `Database`.

    Raises:
        StoreError: from opening too.
    """

    has_tag = "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ? COLLATE NOCASE)"

    def __init__(self, path: Path, versions: Sequence[Sequence[Script]], *, busy_s: float = BUSY_S) -> None:
        self.path = path
        self._versions = versions
        self._busy_s = busy_s
        self._writing = threading.Lock()
        self._guard = threading.Lock()  # of what follows
        self._idle: list[_Connection] = []
        self._writer: _Connection | None = None
        self._own = threading.local()  # the view that this thread has open
        self._inode: tuple[int, int] | None = None
        with self._translating_errors():
            self._writer = self._open_writer()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view for the length of the block. Blocks within a block share its view."""
        outer: _Connection | None = getattr(self._own, "view", None)
        if outer is not None:
            yield outer
            return
        with self._translating_errors():
            connection = self._take_reader()
            try:
                connection.execute("BEGIN")
                connection.memo, self._own.view = {}, connection
                yield connection
            finally:
                connection.memo, self._own.view = None, None
                self._release_reader(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All of the block or nothing of it is written."""
        with self._translating_errors(), self._writing:
            self._drop_stale_connections()
            if self._writer is None:
                self._writer = self._open_writer()
            with write_transaction(self._writer):
                yield self._writer

    @contextmanager
    def outside_transactions(self) -> Iterator[sqlite3.Connection]:
        """A separate connection, for what SQLite does only outside a transaction; it blocks no reader or writer."""
        with self._translating_errors():
            connection = self._connect()
            try:
                yield connection
            finally:
                connection.close()

    def size(self, connection: Connection) -> int:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        return int(pages * page_size)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file, as far as readers let it, without blocking."""
        with self.outside_transactions() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def turn(self, task: str) -> AbstractContextManager[bool]:
        """Always: what two processes do at once on one file, the second finds done."""
        return nullcontext(True)

    def identity(self, connection: Connection) -> object:
        return _inode(self.path)

    def close(self) -> None:
        with self._writing, self._guard:
            for connection in (*self._idle, self._writer):
                if connection is not None:
                    connection.close()
            self._idle.clear()
            self._writer = None

    def _take_reader(self) -> _Connection:
        self._drop_stale_connections()
        with self._guard:
            if self._idle:
                return self._idle.pop()
        if self._writer is None:  # the file was removed: create a new one, with its tables
            with self._writing:
                self._writer = self._writer or self._open_writer()
        return self._connect("PRAGMA query_only = ON")

    def _release_reader(self, connection: _Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._guard:
            if len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_stale_connections(self) -> None:
        """Close connections to a file that was removed or replaced: they would keep reading and writing the old one."""
        if self._inode == _inode(self.path):
            return
        with self._guard:
            stale, self._idle, self._writer = self._idle, [], None
        for connection in stale:
            connection.close()

    def _open_writer(self) -> _Connection:
        make_private(self.path)
        connection = self._connect()
        enable_wal(connection, self._busy_s)
        for pragma in (
            "PRAGMA synchronous = NORMAL",
            "PRAGMA secure_delete = OFF",  # some builds overwrite deleted data with zeros: twice the writes
            f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}",
        ):
            connection.execute(pragma)
        if migrate(connection, self._versions):
            with suppress(sqlite3.OperationalError):  # no room, or in use: the free pages are used later
                connection.execute("VACUUM")
        self._inode = _inode(self.path)
        return connection

    def _connect(self, *pragmas: str) -> _Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        for pragma in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA temp_store = MEMORY",
            *pragmas,
        ):
            connection.execute(pragma)
        return connection

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as ours."""
        try:
            yield
        except StoreUnusableError as error:
            raise StoreUnusableError(f"The archive's store {self.path.name} {error}") from None
        except sqlite3.DatabaseError as error:
            raise _store_error(error, self.path.name) from error


def make_private(path: Path) -> None:
    """Create the file (0600) and its folders (0700) where they are missing, and tighten the mode of a file that exists.

    Folders that exist are left alone. An existing file is never opened here: closing any handle of it would drop the
    locks that SQLite holds on it in this process.

    Raises:
        StoreUnusableError: it cannot be created.
    """
    real = Path(os.path.realpath(path))  # SQLite follows links too, and puts its companions next to the target
    try:
        _make_folders(real.parent)
        if not real.exists():
            _make_file(real)
    except OSError as error:
        raise StoreUnusableError(
            f"cannot be created: {error.strerror}. Check that its folder exists and is writable."
        ) from error
    for each in (real, *(real.with_name(real.name + suffix) for suffix in _COMPANIONS)):
        _tighten(each)


def _make_folders(folder: Path) -> None:
    """Like `mkdir -p`, but parents are private too."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            each.mkdir(mode=_FOLDER_MODE)
            each.chmod(_FOLDER_MODE)  # the umask may have removed more


def _make_file(path: Path) -> None:
    """SQLite would create it with the umask's mode; its companion files inherit the mode of this one."""
    with suppress(FileExistsError):  # another process was faster
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _FILE_MODE)
        try:
            os.fchmod(handle, _FILE_MODE)
        finally:
            os.close(handle)


def _tighten(path: Path) -> None:
    with suppress(FileNotFoundError, PermissionError):  # missing, or owned by another user
        if path.is_file() and path.stat().st_mode & 0o777 != _FILE_MODE:
            path.chmod(_FILE_MODE)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _store_error(error: sqlite3.DatabaseError, name: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLockedError(
            f"The archive's store {name} is being written by another process. Try again in a moment."
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(
            f"There is no room left for the archive's store {name}. Nothing was changed; free some disk space."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreUnusableError(
            f"The archive's store {name} is damaged or not a database ({error}). "
            "Move it away and ingest again, or restore a backup."
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        return StoreUnusableError(
            f"The archive's store {name} cannot be used: {error}. Check that its folder exists and is writable."
        )
    return StoreError(f"The archive's store {name} reported an error: {error}. Try again later, or check the disk.")
