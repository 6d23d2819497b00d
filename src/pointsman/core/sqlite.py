"""SQLite for the gateway's state and for the archive: the write-ahead log, and one write transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_RETRY_S: Final = 0.02


def enable_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """Retry while another connection creates the same file: SQLite's busy timeout does not cover this statement."""
    end = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
            time.sleep(_RETRY_S)
        else:
            return


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the block, or roll it back when it raises. Takes the write lock before the block begins."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
