"""One namespace of a PostgreSQL database, for many readers and one writer at a time, in any number of processes."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from psycopg import errors

from pointsman.archive.store.errors import (
    StoreAwayError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreUnusableError,
)
from pointsman.archive.store.outage import Outage
from pointsman.archive.store.postgres.schema import PART, VERSIONS
from pointsman.archive.store.sql.database import Connection, Rows
from pointsman.archive.store.sql.state import read_state
from pointsman.core import postgres
from pointsman.core.postgres import NewerSchemaError, Postgres, PostgresAwayError, psycopg

SETTINGS = {"hnsw.ef_search": "800", "hnsw.iterative_scan": "relaxed_order"}
CONNECTIONS = 8  # searches and background work of one process
_NULL, _SUBSTITUTE = "\0", "\N{REPLACEMENT CHARACTER}"


class PostgresDatabase:
    """Fits `Database`.

    Raises:
        StoreError: from opening too.
    """

    # The bound value comes as text of the database's collation; C compares bytes and folds ASCII only, as SQLite does.
    has_tag = (
        "EXISTS (SELECT 1 FROM json_array_elements_text(tags::json) AS tag "
        """WHERE lower(tag COLLATE "C") = lower(?::text COLLATE "C"))"""
    )

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._lock = zlib.crc32(schema.encode()) >> 1 or 1  # 0 is taken by migrations
        self._postgres = Postgres(
            url, program="pointsman archive", connections=CONNECTIONS, schema=schema, settings=SETTINGS
        )
        self._own = threading.local()  # the view that this thread has open
        self._outage = Outage(self._probe)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Blocks within a block share its view: each view costs three round trips."""
        outer: Transaction | None = getattr(self._own, "view", None)
        if outer is not None:
            yield outer
            return
        with self._reporting_errors(), self._postgres.reading() as connection:
            self._own.view = Transaction(connection, {})
            try:
                yield self._own.view
            finally:
                self._own.view = None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One such block at a time: readers follow growing numbers, which must become visible in their order."""
        with self._reporting_errors(), self._postgres.writing(lock=self._lock) as connection:
            yield Transaction(connection)

    @contextmanager
    def outside_transactions(self) -> Iterator[Transaction]:
        """For what PostgreSQL does only outside a transaction: each statement commits by itself."""
        with self._reporting_errors(), self._postgres.connection() as connection:
            yield Transaction(connection)

    @contextmanager
    def turn(self, task: str) -> Iterator[bool]:
        """Whether this process may do the task now: no two do it at once. A process that dies gives up its turn."""
        number = zlib.crc32(f"{self.schema} {task}".encode()) >> 1
        with self.outside_transactions() as connection:
            (mine,) = connection.execute("SELECT pg_try_advisory_lock(?, ?)", (_TURNS, number)).fetchone()
            try:
                yield mine
            finally:
                if mine and not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(?, ?)", (_TURNS, number))

    def size(self, connection: Connection) -> int:
        (size,) = connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
            "WHERE relnamespace = ?::regnamespace AND relkind = 'r'",
            (f'"{self.schema}"',),
        ).fetchone()
        return int(size)

    def identity(self, connection: Connection) -> object:
        return read_state(connection).epoch

    def close(self) -> None:
        self._outage.close()
        self._postgres.close()

    def _probe(self) -> None:
        with _translating_errors(), self._postgres.connection() as connection:
            connection.execute("SELECT 1")

    def _migrate(self) -> None:
        with _translating_errors():
            self._postgres.migrate(PART, VERSIONS)

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        self._outage.check()
        try:
            with _translating_errors():
                yield
        except StoreAwayError as error:
            self._outage.begin(error)
            raise


_TURNS = 0x70746E  # the class of the advisory locks of background tasks


class Transaction:
    """Fits `Connection`: takes the statements that both engines share. `memo`: of a view, what was read in it."""

    __slots__ = ("_connection", "memo")

    def __init__(self, connection: postgres.Connection, memo: dict[str, Any] | None = None) -> None:
        self._connection = connection
        self.memo = memo

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(_translated(statement), list(map(_storable, parameters)), binary=True)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> None:
        rows = [list(map(_storable, row)) for row in parameters]
        if rows:
            with self._connection.cursor() as cursor:
                cursor.executemany(_translated(statement), rows)


@lru_cache(maxsize=1_000)
def _translated(statement: str) -> bytes:
    """With psycopg's placeholders. No text in our statements has a `?`."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _storable(value: Any) -> Any:
    """PostgreSQL's text has no null character."""
    if isinstance(value, str):
        return value.replace(_NULL, _SUBSTITUTE) if _NULL in value else value
    return list(map(_storable, value)) if isinstance(value, list) and value and isinstance(value[0], str) else value


@contextmanager
def _translating_errors() -> Iterator[None]:
    """Raise PostgreSQL's errors as ours."""
    try:
        yield
    except PostgresAwayError as error:
        raise StoreAwayError(f"The archive's store is away: {error}") from error
    except NewerSchemaError as error:
        raise StoreUnusableError(str(error)) from error
    except psycopg.Error as error:
        raise _store_error(error) from error


def _store_error(error: psycopg.Error) -> StoreError:
    reason = str(error).strip().partition("\n")[0]
    unusable = f"The archive's store in PostgreSQL cannot be used: {reason}."
    match error:
        case errors.LockNotAvailable() | errors.QueryCanceled() | errors.DeadlockDetected():
            return StoreLockedError(f"The archive's store in PostgreSQL is busy ({reason}). Try again in a moment.")
        case errors.DiskFull() | errors.OutOfMemory():
            return StoreFullError(
                f"PostgreSQL has no room left for the archive's store ({reason}). Nothing was changed; free some space."
            )
        case errors.InsufficientPrivilege() if "create extension" in reason:
            return StoreUnusableError(
                f"{unusable} Let a superuser run `CREATE EXTENSION vector` in this database once; then try again."
            )
        case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
            return StoreUnusableError(
                f"{unusable} Make the user in the database's address the owner of the database, or give it the right "
                "with GRANT."
            )
        case errors.FeatureNotSupported() | errors.UndefinedFile() | errors.UndefinedObject():
            return StoreUnusableError(
                f"{unusable} Install pgvector 0.8 or newer (the extension `vector`) on the server of the database."
            )
    return StoreError(f"The archive's store in PostgreSQL reported an error: {reason}. Try again later.")
