"""Reads the rows of the state database. Changes nothing, and needs no running daemon."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pointsman.router.audit.database import FILE, columns_after, open_to_read
from pointsman.router.audit.filters import IN_TEXT, Filter, like
from pointsman.router.audit.kept import STORED, LastUse, Stored
from pointsman.router.audit.segments import FOLDER

_SELECT = f"SELECT {', '.join(STORED)} FROM audit"  # noqa: S608 - constants
_NEAR_A_TIME = 1_000  # rows: a clock that was set back gives later rows earlier times
FIRST_SEQ = "SELECT min(seq) FROM (SELECT seq FROM audit WHERE time_ms >= ? ORDER BY time_ms LIMIT ?)"
LAST_SEQ = "SELECT max(seq) FROM (SELECT seq FROM audit WHERE time_ms < ? ORDER BY time_ms DESC LIMIT ?)"


class SqliteRows:
    """Fits `KeptRows`. Opens the file for each use, so that it may come, go and be replaced."""

    shared = None

    def __init__(self, state_dir: Path) -> None:
        self.journal = state_dir / FOLDER
        self._file = state_dir / FILE

    @contextmanager
    def read(self, wanted: Filter, *, backwards: bool) -> Iterator[Iterator[Stored]]:
        with self._opened() as connection:
            yield iter(()) if connection is None else connection.execute(*statement_for(connection, wanted, backwards))

    def bounds(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int | None, int | None]:
        with self._opened() as connection:
            if connection is None:
                return 0, None, None
            newest = _one(connection, "SELECT max(seq) FROM audit") or 0
            first = last = None
            if since_ms is not None:
                first = _one(connection, FIRST_SEQ, since_ms, _NEAR_A_TIME) or newest + 1
            if until_ms is not None and _any(connection, "time_ms >= ?", until_ms):
                last = _one(connection, LAST_SEQ, until_ms, _NEAR_A_TIME) or 0
            return newest, first, last

    def lowest(self, below: int, rows: int) -> int:
        return max(below - 1 - rows, 0)  # seqs have no gaps

    def highest(self, above: int, rows: int) -> int:
        return above + rows

    def has_rows_up_to(self, seq: int) -> bool:
        with self._opened() as connection:
            return connection is not None and _any(connection, "seq <= ?", seq)

    def last_uses(self, tokens: Iterable[str]) -> dict[str, LastUse]:
        newest = "SELECT time_ms, client FROM audit WHERE token = ? ORDER BY time_ms DESC LIMIT 1"
        with self._opened() as connection:
            if connection is None or not _has(connection, "audit_token"):
                return {}  # without the index, each look-up would read the whole table
            found = ((token, connection.execute(newest, (token,)).fetchone()) for token in tokens)
            return {token: LastUse(*row) for token, row in found if row}

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection | None]:
        """None: there is no database yet, or it was created, but is still without a table."""
        connection = open_to_read(self._file)
        if connection is None:
            yield None
            return
        with closing(connection):
            yield connection if _has(connection, "audit") else None


def statement_for(connection: sqlite3.Connection, wanted: Filter, backwards: bool) -> tuple[str, list[Any]]:
    """Return the statement that reads the matching rows, and its arguments."""
    select = _SELECT
    for column in columns_after(connection.execute("PRAGMA user_version").fetchone()[0]):
        select = select.replace(column.split()[0], "NULL")  # the daemon adds the column at its next write
    where, arguments = _conditions(wanted)
    order = "DESC" if backwards else "ASC"
    return f"{select} WHERE {where} ORDER BY seq {order}, run {order}", arguments


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    """Return a WHERE clause. A missing outcome may still be in the journal, or belong to a run that has ended."""
    also = sorted(wanted.also)
    listed = f" OR seq IN ({', '.join('?' * len(also))})" if also else ""
    clauses, arguments = [f"(seq > ?{listed})"], [wanted.after_seq, *also]
    for clause, value in _clauses(wanted):
        clauses.append(clause)
        arguments.append(value)
    if wanted.outcome == "":
        clauses.append("outcome IS NULL")
    return " AND ".join(clauses), arguments


def _clauses(wanted: Filter) -> list[tuple[str, Any]]:
    # A page goes by seq alone: by another index, SQLite would sort all of its rows before the first.
    plus = "" if wanted.before_seq is None else "+"
    clauses: list[tuple[str, Any]] = [(f"{plus}{name} IS ?", value) for name, value in wanted.values()]
    if wanted.before_seq is not None:
        clauses.append(("seq < ?", wanted.before_seq))
    if wanted.since_ms is not None:
        clauses.append((f"{plus}time_ms >= ?", wanted.since_ms))
    if wanted.until_ms is not None:
        clauses.append((f"{plus}time_ms < ?", wanted.until_ms))
    if wanted.text:
        any_of = " || ' ' || ".join(f"ifnull({name}, '')" for name in IN_TEXT)
        clauses.append((f"{any_of} LIKE ? ESCAPE '\\'", like(wanted.text)))
    if wanted.outcome:
        clauses.append(("(outcome = ? OR outcome IS NULL)", wanted.outcome))
    if wanted.code is not None:
        clauses.append(("(code = ? OR outcome IS NULL)", wanted.code))
    return clauses


def _has(connection: sqlite3.Connection, name: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone())


def _any(connection: sqlite3.Connection, condition: str, value: int) -> bool:
    return bool(connection.execute(f"SELECT 1 FROM audit WHERE {condition} LIMIT 1", (value,)).fetchone())  # noqa: S608


def _one(connection: sqlite3.Connection, statement: str, *values: int) -> int | None:
    found: int | None = connection.execute(statement, values).fetchone()[0]
    return found
