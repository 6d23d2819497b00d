"""Moves journal segments into the state database and bounds its size. Runs in a thread."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pointsman.core.sqlite import write_transaction
from pointsman.router.audit.database import BUSY_S, is_broken, is_unexpected, open_database, set_aside
from pointsman.router.audit.kept import ENDS, STORED, Stored, move, paired
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.audit.segments import Segment

# Many rows per statement: each statement releases the GIL and has to reacquire it from a busy event loop. To bind
# NULLs takes as long as the rest of an insert, so most rows bind only the columns that they have.
ROWS_PER_STATEMENT = 128
_COMMON = "run, seq, time_ms, request_id, kind, token, project, client, method, tool_key, server_id, outcome, ms, bytes"
_RARE = "queries, arguments, code, results, provider, fallback, repeats, read_as, confirmed"  # NULL for most calls
_UPDATE = (
    "UPDATE audit SET outcome = ?, code = ?, ms = ?, results = ?, bytes = ?, provider = ?, fallback = ?, repeats = ?,"
    " read_as = ?, confirmed = ? WHERE seq = ? AND run = ? AND outcome IS NULL"
)
_ADD = f"INSERT OR IGNORE INTO audit ({', '.join(STORED)}) VALUES ({', '.join('?' * len(STORED))})"  # noqa: S608
_DELETE_BATCH = 5000
_TRIM_TO = 0.95  # of `max_bytes`, so that not every move trims

Values = tuple[Any, ...]
_encode = msgspec.json.Encoder().encode


class Store:
    """Writes to the state database. Opened at first use; used by one thread at a time. Fits `kept.RowWriter`."""

    mover_environment: Mapping[str, str] | None = MappingProxyType({})
    replica: str | None = None

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self._path = path
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None
        self.added = 0
        self._file: os.stat_result | None = None  # the file that the connection writes to

    def move(self, folder: Path, position: tuple[str, int] | None, *, other_runs: bool = True) -> int:
        """Move all final segments; see `kept.move`."""
        return move(self, folder, position, other_runs=other_runs)

    def add_segment(self, segment: Segment) -> None:
        """To repeat it changes nothing: run and seq identify a row."""
        rows = 0
        with self._transaction() as connection:
            for calls, late in paired(segment):
                _insert_calls(connection, segment.run, calls)
                rows += len(calls)
                if late:
                    connection.executemany(_UPDATE, [(*_ending(outcome), outcome.seq, segment.run) for outcome in late])
        self.added += rows

    def add_stored(self, rows: Sequence[Stored]) -> int:
        with self._transaction() as connection:
            before = connection.total_changes
            connection.executemany(_ADD, [row[: len(STORED)] for row in rows])
            added = connection.total_changes - before
            ended = [(*row[ENDS : len(STORED)], row[1], row[0]) for row in rows if row[ENDS] is not None]
            connection.executemany(_UPDATE, ended)
        return added

    def interrupt(self, run: str) -> None:
        with self._transaction() as connection:
            connection.execute("UPDATE audit SET outcome = 'interrupted' WHERE run = ? AND outcome IS NULL", (run,))

    def interrupt_lost(self) -> None:
        """There are none: all rows are of this state folder."""

    def trim(self, *, older_than_ms: int, max_bytes: int) -> int:
        """Delete rows that are too old, then the oldest until the database fits; return how many.

        Raises:
            sqlite3.Error, OSError, NewerSchemaError: retry later.
        """
        deleted = self._delete_oldest("time_ms", self._count("WHERE time_ms < ?", older_than_ms))
        while (used := self._used_bytes()) > max_bytes:
            share = 1 - _TRIM_TO * max_bytes / used
            too_many = math.ceil(self._count() * share)
            if not too_many:
                break
            deleted += self._delete_oldest("seq", too_many)
        if deleted:
            self._open().executescript(
                "PRAGMA incremental_vacuum"
            )  # one step per page; `execute` would run only the first
            self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return deleted

    def newest_ms(self, *, other_than: str) -> int | None:
        """Return the time of the newest row of the other runs. Raises as `trim` does."""
        query = "SELECT time_ms FROM audit WHERE run <> ? ORDER BY time_ms DESC LIMIT 1"
        row = self._execute(query, other_than).fetchone()
        return int(row[0]) if row else None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _count(self, where: str = "", *arguments: int) -> int:
        return int(self._execute(f"SELECT count(*) FROM audit {where}", *arguments).fetchone()[0])  # noqa: S608

    def _delete_oldest(self, order: str, rows: int) -> int:
        for left in range(rows, 0, -_DELETE_BATCH):
            with self._transaction() as connection:
                connection.execute(
                    f"DELETE FROM audit WHERE rowid IN (SELECT rowid FROM audit ORDER BY {order} LIMIT ?)",  # noqa: S608
                    (min(left, _DELETE_BATCH),),
                )
        return rows

    def _used_bytes(self) -> int:
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
        return int((pages - free) * size)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Raises sqlite3.Error. A corrupt database is set aside, and the next transaction creates a new one."""
        try:
            connection = self._open()
            with write_transaction(connection):
                yield connection
        except sqlite3.DatabaseError as error:
            self._failed(error)
            raise

    def _execute(self, statement: str, *arguments: str | int) -> sqlite3.Cursor:
        try:
            return self._open().execute(statement, arguments)
        except sqlite3.DatabaseError as error:
            self._failed(error)
            raise

    def _failed(self, error: sqlite3.DatabaseError) -> None:
        if is_broken(error):
            self.close()
            set_aside(self._path, error)
        elif is_unexpected(error):
            self.close()  # the next use reopens it and checks its schema

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and not self._is_in_place():
            self.close()  # the path is another file now, and writes to this one would be lost
        if self._connection is None:
            self._connection = open_database(self._path, self._busy_s)
            self._file = self._path.stat()
        return self._connection

    def _is_in_place(self) -> bool:
        try:
            return self._file is not None and os.path.samestat(self._file, self._path.stat())
        except OSError:
            return False


def _insert_calls(connection: sqlite3.Connection, run: str, calls: list[tuple[Intent, Outcome]]) -> None:
    common: list[Values] = []
    full: list[Values] = []
    for intent, outcome in calls:
        row = (run, *_common_of_intent(intent), *_common_of_outcome(outcome))
        rare = _rare_values(intent, outcome)
        if rare == _NO_RARE:
            common.append(row)
        else:
            full.append(row + rare)
    _insert(connection, _COMMON, common)
    _insert(connection, f"{_COMMON}, {_RARE}", full)


def _insert(connection: sqlite3.Connection, columns: str, rows: list[Values]) -> None:
    """Insert in powers of two, so that a few prepared statements serve any number of rows."""
    done = 0
    while left := len(rows) - done:
        size = min(ROWS_PER_STATEMENT, 1 << (left.bit_length() - 1))
        connection.execute(_insert_statement(columns, size), list(chain.from_iterable(rows[done : done + size])))
        done += size


@cache
def _insert_statement(columns: str, rows: int) -> str:
    marks = f"({', '.join('?' * len(columns.split(',')))})"
    return f"INSERT OR IGNORE INTO audit ({columns}) VALUES {', '.join([marks] * rows)}"  # noqa: S608 - constants


def _rare_values(intent: Intent, outcome: Outcome) -> Values:
    queries = None if intent.queries is None else _encode(intent.queries).decode()
    arguments = None if intent.arguments is msgspec.UNSET else _encode(intent.arguments).decode()
    return (queries, arguments, *_rare_of_outcome(outcome))


# In the order of the columns. `attrgetter` reads all in one step.
_common_of_intent = attrgetter(
    *("seq", "time_ms", "request_id", "kind", "token", "project", "client", "method", "tool_key", "server_id")
)
_common_of_outcome = attrgetter("outcome", "ms", "bytes")
_rare_of_outcome = attrgetter("code", "results", "provider", "fallback", "repeats", "read_as", "confirmed")
_ending = attrgetter(
    *("outcome", "code", "ms", "results", "bytes", "provider", "fallback", "repeats", "read_as", "confirmed")
)
_NO_RARE = (None,) * len(_RARE.split(","))
