"""Moves journal segments into PostgreSQL: rows and the segment's marker in one transaction, so each comes once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, LiteralString

import msgspec

from pointsman.core.postgres import Connection, Postgres
from pointsman.router.audit.kept import STORED, Stored, paired
from pointsman.router.audit.postgres.tables import COPIED, DAY_MS, DAYS_AHEAD, AuditTables
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.audit.segments import Segment, replica_of

LOST_S: Final = 60.0  # for a gateway that gave no sign of life: its calls have ended
_MAKE_DAYS_EVERY_S: Final = 3600.0
_OLDEST_DAY: Final = 3_650  # days ago, for which a copied row gets a partition

COLUMNS: LiteralString = (
    "replica, run, seq, time_ms, request_id, kind, token, project, client, method, tool_key, server_id, "
    "queries, arguments, outcome, ms, bytes, code, results, provider, fallback, repeats, read_as, confirmed"
)
# One statement for all late outcomes of a segment: to plan one takes longer than to run it, over 100 partitions.
_UPDATE: LiteralString = """
    UPDATE audit SET outcome = late.outcome, code = late.code, ms = late.ms, results = late.results,
        bytes = late.bytes, provider = late.provider, fallback = late.fallback, repeats = late.repeats,
        read_as = late.read_as, confirmed = late.confirmed
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::float8[], %s::bigint[], %s::bigint[], %s::text[],
        %s::boolean[], %s::bigint[], %s::text[], %s::text[])
        AS late (seq, outcome, code, ms, results, bytes, provider, fallback, repeats, read_as, confirmed)
    WHERE audit.run = %s AND audit.seq = late.seq AND audit.outcome """
_UPDATE_OPEN: LiteralString = _UPDATE + "IS NULL RETURNING audit.seq"
_UPDATE_INTERRUPTED: LiteralString = _UPDATE + "= 'interrupted' RETURNING audit.seq"
_INTERRUPT_LOST: LiteralString = """
    UPDATE audit SET outcome = 'interrupted' WHERE outcome IS NULL AND replica IS NOT NULL AND NOT replica = ANY(%s)
        AND time_ms < (extract(epoch FROM clock_timestamp()) - %s) * 1000
"""
_COPY: LiteralString = f"COPY audit ({COLUMNS}) FROM STDIN"
_MERGE: LiteralString = f"""
    INSERT INTO audit ({COLUMNS}) SELECT {COLUMNS} FROM arriving
    WHERE NOT EXISTS (SELECT 1 FROM audit WHERE audit.seq = arriving.seq AND audit.run = arriving.run)
"""  # noqa: S608 - constants
_COPY_STORED: Final = f"COPY arriving ({', '.join(STORED)}, replica) FROM STDIN".encode()
_END_COPIED: LiteralString = """
    UPDATE audit SET outcome = arriving.outcome, code = arriving.code, ms = arriving.ms, results = arriving.results,
        bytes = arriving.bytes, provider = arriving.provider, fallback = arriving.fallback,
        repeats = arriving.repeats, read_as = arriving.read_as, confirmed = arriving.confirmed
    FROM arriving WHERE audit.seq = arriving.seq AND audit.run = arriving.run
        AND audit.outcome IS NULL AND arriving.outcome IS NOT NULL
"""
_encode = msgspec.json.Encoder().encode
_of_intent = attrgetter(
    *("seq", "time_ms", "request_id", "kind", "token", "project", "client", "method", "tool_key", "server_id")
)
_of_outcome = attrgetter(
    *("outcome", "ms", "bytes", "code", "results", "provider", "fallback", "repeats", "read_as", "confirmed")
)
_ending = attrgetter(
    *("outcome", "code", "ms", "results", "bytes", "provider", "fallback", "repeats", "read_as", "confirmed")
)

_FALLBACK: Final = STORED.index("fallback")

Living = Callable[[float], tuple[str, ...] | None]
"""The gateways that gave a sign of life in the last seconds; None: that cannot be said."""


class PostgresWriter:
    """Fits `kept.RowWriter`. One writer at a time, of all gateways, holds the audit's lock."""

    def __init__(
        self,
        postgres: Postgres,
        replica: str | None,
        living: Living = lambda seconds: None,
        *,
        look_for_lost_every_s: float = 15.0,
    ) -> None:
        self.mover_environment: Mapping[str, str] | None = None
        self._tables = AuditTables(postgres)
        self.replica = replica
        self.added = 0
        self._living = living
        self._look_for_lost_every_s = look_for_lost_every_s
        self._looked_for_lost_at = self._days_made_at = float("-inf")
        self._made: set[int] = set()  # days of copied rows that have their partitions

    def add_segment(self, segment: Segment) -> None:
        """To repeat it changes nothing: the marker of a segment is committed with its rows."""
        self._make_days()
        with self._tables.writing() as connection:
            marked = {
                int(number)
                for (number,) in connection.execute(
                    "SELECT number FROM audit_segments WHERE run = %s AND number IN (%s, %s)",
                    (segment.run, segment.number, COPIED),
                )
            }
            if segment.number in marked:
                return
            late: list[Outcome] = []
            rows = add_rows(connection, self._rows(segment, late), once=COPIED in marked)
            self._end_earlier(connection, segment.run, late)
            connection.execute("INSERT INTO audit_segments VALUES (%s, %s)", (segment.run, segment.number))
        self.added += rows

    def add_stored(self, rows: Sequence[Stored]) -> int:
        self._make_days_of(rows)
        with self._tables.writing() as connection:
            _make_arriving(connection)
            _copy(connection, _COPY_STORED, map(_with_replica, rows))
            added = connection.execute(_MERGE).rowcount
            connection.execute(_END_COPIED)
            # The journal may still have them, and a mover that was killed may bring them again.
            connection.execute(
                "INSERT INTO audit_segments SELECT DISTINCT run, %s FROM arriving ON CONFLICT DO NOTHING", (COPIED,)
            )
            return added

    def interrupt(self, run: str) -> None:
        with self._tables.writing() as connection:
            connection.execute("UPDATE audit SET outcome = 'interrupted' WHERE run = %s AND outcome IS NULL", (run,))

    def interrupt_lost(self) -> None:
        """A gateway that returns with its journal gives them their true outcomes."""
        now = time.monotonic()
        if now - self._looked_for_lost_at < self._look_for_lost_every_s:
            return
        living = self._living(LOST_S)
        if living is None:
            return
        with self._tables.writing() as connection:
            connection.execute(_INTERRUPT_LOST, (list(living), LOST_S))
        self._looked_for_lost_at = now

    def trim(self, *, older_than_ms: int, max_bytes: int) -> int:
        return self._tables.drop_days(older_than_ms, max_bytes)

    def newest_ms(self, *, other_than: str) -> int | None:
        with self._tables.reading() as connection:
            row = connection.execute(
                "SELECT time_ms FROM audit WHERE run <> %s ORDER BY seq DESC, run DESC LIMIT 1", (other_than,)
            ).fetchone()
        return int(row[0]) if row else None

    def close(self) -> None:
        """The pool is its owner's."""

    def _make_days(self) -> None:
        now = time.monotonic()
        if now - self._days_made_at >= _MAKE_DAYS_EVERY_S:
            today_ms = int(time.time() * 1000)
            self._tables.make_days(today_ms - DAY_MS, today_ms + DAYS_AHEAD * DAY_MS)
            self._days_made_at = now

    def _make_days_of(self, rows: Sequence[Stored]) -> None:
        """Make the days of these rows, unless a wrong clock dated them."""
        now_ms = int(time.time() * 1000)
        days = {row[2] // DAY_MS * DAY_MS for row in rows}
        for day_ms in sorted(days - self._made):
            if now_ms - _OLDEST_DAY * DAY_MS <= day_ms <= now_ms + DAYS_AHEAD * DAY_MS:
                self._tables.make_days(day_ms, day_ms)
        self._made |= days

    def _rows(self, segment: Segment, late: list[Outcome]) -> Iterator[tuple[Any, ...]]:
        replica = replica_of(segment.path.parent, segment.run) or self.replica
        for calls, endings in paired(segment):
            for intent, outcome in calls:
                yield row_values(replica, segment.run, intent, outcome)
            late += endings

    def _end_earlier(self, connection: Connection, run: str, late: Sequence[Outcome]) -> None:
        """Give the rows of earlier segments their outcomes, also where we were thought to be gone."""
        for statement in (_UPDATE_OPEN, _UPDATE_INTERRUPTED):
            if not late:
                return
            columns = zip(*((outcome.seq, *map(_plain, _ending(outcome))) for outcome in late), strict=True)
            done = connection.execute(statement, [*map(list, columns), run]).fetchall()
            ended = {seq for (seq,) in done}
            late = [outcome for outcome in late if outcome.seq not in ended]


def _with_replica(row: Stored) -> list[Any]:
    """A row of SQLite has no replica, and numbers for truth values."""
    values = [*row, *([None] if len(row) == len(STORED) else [])]
    if values[_FALLBACK] is not None:
        values[_FALLBACK] = bool(values[_FALLBACK])
    return values


def row_values(replica: str | None, run: str, intent: Intent, outcome: Outcome) -> tuple[Any, ...]:
    """The values of COLUMNS."""
    queries = None if intent.queries is None else _encode(intent.queries).decode()
    arguments = None if intent.arguments is msgspec.UNSET else _encode(intent.arguments).decode()
    return (replica, run, *_of_intent(intent), queries, arguments, *_of_outcome(outcome))


def add_rows(connection: Connection, rows: Iterable[tuple[Any, ...]], *, once: bool) -> int:
    """Add rows by COPY; return how many. `once`: leave out those that are there."""
    if not once:
        return _copy(connection, _COPY, rows)
    _make_arriving(connection)
    _copy(connection, f"COPY arriving ({COLUMNS}) FROM STDIN", rows)
    return connection.execute(_MERGE).rowcount


def _make_arriving(connection: Connection) -> None:
    """A table for rows of which some may be there already."""
    connection.execute("CREATE TEMP TABLE arriving (LIKE audit) ON COMMIT DROP")
    connection.execute("ALTER TABLE arriving ALTER id DROP NOT NULL")


def _copy(connection: Connection, statement: LiteralString | bytes, rows: Iterable[Sequence[Any]]) -> int:
    with connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row([_plain(value) for value in row])
        return cursor.rowcount


def _plain(value: Any) -> Any:
    """PostgreSQL has no text with a null character."""
    return value.replace("\0", "\ufffd") if type(value) is str and "\0" in value else value
