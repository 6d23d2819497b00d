"""The write-ahead log of a file that several processes create at once."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from pointsman.core.sqlite import enable_wal


def test_the_log_is_enabled_when_another_connection_has_written(tmp_path: Path) -> None:
    path = tmp_path / "values.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    own = sqlite3.connect(path, timeout=30, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE made (at)")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        own.execute("PRAGMA journal_mode = WAL")  # the timeout of the connection does not hold for it
    end = threading.Timer(0.1, other.execute, ["COMMIT"])
    end.start()
    enable_wal(own, 30)
    end.join()
    assert own.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    for connection in (other, own):
        connection.close()


def test_a_file_that_stays_locked_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "values.db"
    other, own = sqlite3.connect(path, isolation_level=None), sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    own.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        enable_wal(own, 0.05)
    for connection in (other, own):
        connection.close()
