"""The audit's tables in PostgreSQL: a partition for each day, and the segments that have been moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, LiteralString

from psycopg import sql

from pointsman.core.postgres import Connection, NewerSchemaError, Postgres, PostgresAwayError, psycopg, refusal
from pointsman.router.audit.kept import AuditDatabaseAwayError, AuditDatabaseError

LOCK: Final = 1  # of all writers: readers that follow arrivals need ids to become visible in order
DAY_MS: Final = 86_400_000
DAYS_AHEAD: Final = 7
COPIED: Final = -1
"""The number, in `audit_segments`, of rows that `pointsman state copy` brought: segments may repeat them."""
_PARTITION: Final = "audit_day_"
_PATIENCE: LiteralString = "SET LOCAL lock_timeout = '2s'"  # a long read must not make all others wait behind us

# Without a unique (run, seq): in a partitioned table it would need the time, too. The segments keep rows from coming
# twice.
VERSIONS: tuple[LiteralString, ...] = (
    """
    CREATE SEQUENCE audit_ids;
    CREATE TABLE audit (
        id bigint NOT NULL DEFAULT nextval('audit_ids'), replica text, run text COLLATE "C" NOT NULL,
        seq bigint NOT NULL, time_ms bigint NOT NULL, request_id text NOT NULL, kind text NOT NULL, token text,
        project text, client text NOT NULL, method text NOT NULL, queries text, tool_key text, server_id text,
        arguments text, outcome text, code text, ms double precision, results bigint, bytes bigint, provider text,
        fallback boolean, repeats bigint, read_as text
    ) PARTITION BY RANGE (time_ms);
    CREATE INDEX audit_seq ON audit (seq, run);
    CREATE INDEX audit_open ON audit (run, seq) WHERE outcome IS NULL;
    CREATE INDEX audit_token ON audit (token, time_ms) WHERE token IS NOT NULL;
    CREATE INDEX audit_time ON audit (time_ms);
    CREATE INDEX audit_id ON audit (id);
    CREATE TABLE audit_default PARTITION OF audit DEFAULT;
    CREATE TABLE audit_segments (
        run text COLLATE "C" NOT NULL, number integer NOT NULL, moved timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (run, number)
    );
    """,
)
# Columns that came later. They make no new version, so that gateways of the version before go on beside newer ones
# during a rolling update: those name the columns that they know.
_ADDED: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (("confirmed", "text"),)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what PostgreSQL raises into AuditDatabaseError. Its texts name tables and hosts, never a password."""
    try:
        yield
    except PostgresAwayError as error:
        raise AuditDatabaseAwayError(str(error)) from error
    except NewerSchemaError as error:
        raise AuditDatabaseError(str(error)) from error
    except psycopg.Error as error:
        raise AuditDatabaseError(refusal(error)) from error


class AuditTables:
    """The database, with the tables made at first use."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._ready = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with reported():
            self._migrate()
            with self._postgres.reading() as connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with reported():
            self._migrate()
            with self._postgres.writing(lock=LOCK) as connection:
                yield connection

    def _migrate(self) -> None:
        if not self._ready:
            self._postgres.migrate("audit", VERSIONS)
            self._add_columns()
            self._ready = True

    def _add_columns(self) -> None:
        with self._postgres.writing(lock=LOCK) as connection:
            found = connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'audit'::regclass AND NOT attisdropped"
            )
            present = {str(name) for (name,) in found}
            for name, kind in _ADDED:
                if name not in present:
                    connection.execute(_PATIENCE)
                    connection.execute(
                        sql.SQL("ALTER TABLE audit ADD COLUMN {} {}").format(sql.Identifier(name), sql.SQL(kind))
                    )

    def make_days(self, first_ms: int, last_ms: int) -> None:
        """Make the missing partitions for these days. Rows of a day without one are in `audit_default`."""
        with self.writing() as connection:
            missing = [day for day in _days(first_ms, last_ms) if day not in dict(days_of(connection))]
            if missing:
                connection.execute(_PATIENCE)
            for day in missing:
                _make_day(connection, day)

    def drop_days(self, older_than_ms: int, max_bytes: int) -> int:
        """Drop days that are too old, then the oldest until the rest fits; return how many. Today's stays."""
        with self.writing() as connection:
            days = sorted(days_of(connection))
            sizes = {day: _size(connection, table) for day, table in days}
            used = sum(sizes.values()) + _size(connection, "audit_default")
            today = int(datetime.now(UTC).timestamp() * 1000) // DAY_MS * DAY_MS
            dropped = 0
            for day, table in days:
                if day + DAY_MS > older_than_ms and (used <= max_bytes or day >= today):
                    continue
                if not dropped:
                    connection.execute(_PATIENCE)
                name = sql.Identifier(table)
                connection.execute(sql.SQL("ALTER TABLE audit DETACH PARTITION {}").format(name))
                connection.execute(sql.SQL("DROP TABLE {}").format(name))
                used -= sizes[day]
                dropped += 1
            connection.execute("DELETE FROM audit_default WHERE time_ms < %s", (older_than_ms,))
            connection.execute("DELETE FROM audit_segments WHERE moved < to_timestamp(%s / 1000.0)", (older_than_ms,))
            return dropped


def days_of(connection: Connection) -> list[tuple[int, str]]:
    """Return the partitions: the first millisecond of the day, and the table."""
    found = connection.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'audit'::regclass"
    )
    names = [str(name) for (name,) in found if str(name).startswith(_PARTITION)]
    return [(_first_ms(name.removeprefix(_PARTITION)), name) for name in names]


def _make_day(connection: Connection, day_ms: int) -> None:
    held = connection.execute(
        "SELECT 1 FROM audit_default WHERE time_ms >= %s AND time_ms < %s LIMIT 1", (day_ms, day_ms + DAY_MS)
    ).fetchone()
    if held:
        return  # they came before their partition; it would have to take them over, and they are found where they are
    table = sql.Identifier(f"{_PARTITION}{_date(day_ms)}")
    first, end = sql.Literal(day_ms), sql.Literal(day_ms + DAY_MS)
    # To attach takes weaker locks than to create it as a partition.
    connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (LIKE audit)").format(table))
    connection.execute(
        sql.SQL("ALTER TABLE audit ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(table, first, end)
    )


def _size(connection: Connection, table: str) -> int:
    row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", (table,)).fetchone()
    return int(row[0]) if row else 0


def _days(first_ms: int, last_ms: int) -> Iterator[int]:
    yield from range(first_ms // DAY_MS * DAY_MS, last_ms + 1, DAY_MS)


def _date(day_ms: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=day_ms):%Y%m%d}"


def _first_ms(date: str) -> int:
    return int(datetime.strptime(date, "%Y%m%d").replace(tzinfo=UTC).timestamp() * 1000)
