"""Reads the rows of all gateways from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pointsman.core.postgres import Connection, Postgres
from pointsman.router.audit.filters import IN_TEXT, Filter, like, lower
from pointsman.router.audit.kept import STORED, LastUse, Stored
from pointsman.router.audit.postgres.tables import AuditTables
from pointsman.router.audit.segments import FOLDER

_BATCH: Final = 2_000  # rows that are fetched at once
_SELECT: Final = f"SELECT {', '.join(STORED)}, replica FROM audit"  # noqa: S608 - constants
_NEAR_A_TIME: Final = 1_000  # rows: the clocks of gateways differ
_FIRST_SEQ: Final = (
    b"SELECT min(seq) FROM (SELECT seq FROM audit WHERE time_ms >= %s ORDER BY time_ms LIMIT %s) AS first"
)
_LAST_SEQ: Final = (
    b"SELECT max(seq) FROM (SELECT seq FROM audit WHERE time_ms < %s ORDER BY time_ms DESC LIMIT %s) AS last"
)
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class PostgresRows:
    """Fits `kept.SharedRows`: the rows of all gateways, and the journal of this one."""

    def __init__(self, postgres: Postgres, state_dir: Path) -> None:
        self.journal = state_dir / FOLDER
        self._tables = AuditTables(postgres)
        self.seen = 0, 0

    @property
    def shared(self) -> PostgresRows:
        return self

    @contextmanager
    def read(self, wanted: Filter, *, backwards: bool) -> Iterator[Iterator[Stored]]:
        where, arguments = _conditions(wanted)
        order = "DESC" if backwards else "ASC"
        statement = f"{_SELECT} WHERE {where} ORDER BY seq {order}, run {order}"
        with self._tables.reading() as connection, connection.cursor(name="rows") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(statement.encode(), arguments)
            yield iter(cursor)

    def bounds(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int | None, int | None]:
        with self._tables.reading() as connection:
            newest = _one(connection, b"SELECT seq FROM audit ORDER BY seq DESC LIMIT 1") or 0
            first = last = None
            if since_ms is not None:
                first = _one(connection, _FIRST_SEQ, since_ms, _NEAR_A_TIME) or newest + 1
            later = b"SELECT 1 FROM audit WHERE time_ms >= %s LIMIT 1"
            if until_ms is not None and _one(connection, later, until_ms):
                last = _one(connection, _LAST_SEQ, until_ms, _NEAR_A_TIME) or 0
            return newest, first, last

    def lowest(self, below: int, rows: int) -> int:
        with self._tables.reading() as connection:
            step = b"SELECT seq FROM audit WHERE seq < %s ORDER BY seq DESC OFFSET %s LIMIT 1"
            return _one(connection, step, below, rows) or 0

    def highest(self, above: int, rows: int) -> int:
        with self._tables.reading() as connection:
            step = b"SELECT seq FROM audit WHERE seq > %s ORDER BY seq OFFSET %s LIMIT 1"
            return _one(connection, step, above, rows) or 2**63 - 1

    def has_rows_up_to(self, seq: int) -> bool:
        with self._tables.reading() as connection:
            return _one(connection, b"SELECT 1 FROM audit WHERE seq <= %s LIMIT 1", seq) is not None

    def last_uses(self, tokens: Iterable[str]) -> dict[str, LastUse]:
        newest = (
            "SELECT asked.token, used.time_ms, used.client FROM unnest(%s::text[]) AS asked (token) CROSS JOIN LATERAL "
            "(SELECT time_ms, client FROM audit WHERE token = asked.token ORDER BY time_ms DESC LIMIT 1) AS used"
        )
        with self._tables.reading() as connection:
            found = connection.execute(newest, (list(tokens),)).fetchall()
        return {token: LastUse(time_ms, client) for token, time_ms, client in found}

    def look(self) -> tuple[int, int]:
        with self._tables.reading() as connection:
            # Of rows that were committed: writers hold a lock, so there is no lower number to come.
            newest = _one(connection, b"SELECT max(id) FROM audit") or 0
            self.seen = newest, _one(connection, b"SELECT count(*) FROM audit WHERE outcome IS NULL") or 0
        return self.seen

    def unfinished(self, up_to_id: int) -> list[int]:
        with self._tables.reading() as connection:
            found = connection.execute(b"SELECT id FROM audit WHERE outcome IS NULL AND id <= %s", (up_to_id,))
            return [number for (number,) in found.fetchall()]

    def arrivals(self, after_id: int, also: Iterable[int]) -> list[tuple[int, Stored]]:
        statement = f"{_SELECT.replace('SELECT', 'SELECT id,', 1)} WHERE id > %s OR id = ANY(%s) ORDER BY id"
        with self._tables.reading() as connection:
            found = connection.execute(statement.encode(), (after_id, list(also))).fetchall()
        return [(row[0], row[1:]) for row in found]


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    """Return a WHERE clause. A missing outcome may still be in the journal, or belong to a run that has ended."""
    parts = list(_clauses(wanted))
    return " AND ".join(clause for clause, _ in parts), [value for _, values in parts for value in values]


def _clauses(wanted: Filter) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if wanted.also:
        yield "(seq > %s OR seq = ANY(%s))", (wanted.after_seq, sorted(wanted.also))
    else:
        yield "seq > %s", (wanted.after_seq,)
    for name, value in wanted.values():
        yield (f"{name} IS NULL", ()) if value is None else (f"{name} = %s", (_plain(value),))
    bounds = (("seq < %s", wanted.before_seq), ("time_ms >= %s", wanted.since_ms), ("time_ms < %s", wanted.until_ms))
    yield from ((clause, (bound,)) for clause, bound in bounds if bound is not None)
    if wanted.text:
        any_of = " || ' ' || ".join(f"coalesce({name}, '')" for name in IN_TEXT)
        lowered = f"translate({any_of}, '{_UPPER}', '{_UPPER.lower()}')"  # as rows of the journal are compared
        yield f"{lowered} LIKE %s", (_plain(lower(like(wanted.text))),)
    if wanted.outcome is not None:
        yield "(outcome = nullif(%s, '') OR outcome IS NULL)", (wanted.outcome,)
    if wanted.code is not None:
        yield "(code = %s OR outcome IS NULL)", (_plain(wanted.code),)


def _plain(text: str) -> str:
    """As the writer stores it: PostgreSQL has no text with a null character."""
    return text.replace("\0", "\ufffd")


def _one(connection: Connection, statement: bytes, *values: int) -> int | None:
    row = connection.execute(statement, values).fetchone()
    return None if row is None or row[0] is None else int(row[0])
