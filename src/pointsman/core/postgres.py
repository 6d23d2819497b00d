"""PostgreSQL for the state of several gateways and for the archive: connections, transactions, the schema's version.

psycopg is an extra (`pointsman[postgres]`). Only what works on a configured address imports this module.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, Self, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

__all__ = ["Connection", "NewerSchemaError", "Postgres", "PostgresAwayError", "check_address", "psycopg", "refusal"]

CONNECT_S = 3
"""How long a transaction waits for a connection, and a connection for the server."""
STATEMENT_S = 60
FRESH_S = 1.0
"""How long a connection is trusted after its last use."""
SILENT_S = 10
"""A machine that has been silent for so long is taken for dead."""
_LOCKS = 0x70746D  # the class of all our advisory locks: "ptm"
_CONNECTING = re.compile(r"^(connection failed: )?(connection to server .*? failed: )?((FATAL|ERROR): +)?")

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Versions: TypeAlias = Sequence[LiteralString]
"""The script of each version of a part's tables, from 1: one is never changed after a release, a new one is added."""

# The pool reports each failed attempt; the errors of the transactions say the same once.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


# What libpq and the server say of a connection that was not made, and the next step. libpq gives no SQLSTATE for it.
_REFUSALS: Sequence[tuple[str, str]] = (
    (r"password authentication failed|no password supplied", "Correct the user and the password in the address."),
    (r"role .* does not exist", "Create that user (`CREATE ROLE ... LOGIN`), or correct the user in the address."),
    (r"database .* does not exist", "Create it (`CREATE DATABASE`), or correct the database in the address."),
    (r"no pg_hba.conf entry|authentication failed", "Allow this user and this machine in the server's pg_hba.conf."),
    (r"permission denied for database", "Allow it: `GRANT CONNECT ON DATABASE ... TO ...`."),
)
_UNKNOWN_HOST = r"could not translate host name|failed to resolve host|Name or service not known"


class PostgresAwayError(Exception):
    """The server cannot be reached, or it ended the connection: nothing is known of the transaction's commit."""

    def __init__(self, reason: object, place: str) -> None:
        """`place`: the host, the port and the database."""
        line = _CONNECTING.sub("", _first_line(reason)) or "no reason was given"
        what, step = "cannot be reached", "Try again; if it lasts, check that it runs and listens there."
        if re.search(_UNKNOWN_HOST, line):
            step = "Correct the host in the address, or check this machine's DNS."
        for pattern, refused in _REFUSALS:
            if re.search(pattern, line):
                what, step = "refused the connection", refused
                break
        super().__init__(f"PostgreSQL {what} at {place} ({line}). {step}")


class NewerSchemaError(Exception):
    """A newer Pointsman has written the tables."""

    def __init__(self, part: str, version: int, latest: int) -> None:
        super().__init__(
            f"The {part} in PostgreSQL was written by a newer Pointsman (version {version} of its tables; this one "
            f"supports up to {latest}). Upgrade this Pointsman."
        )


class Postgres:
    """A pool of connections to one database. Threads share it. Opening it does not wait for the server.

    Every method raises PostgresAwayError when the server is away. Other errors of psycopg pass through.
    """

    def __init__(
        self,
        url: str,
        *,
        program: str,
        connections: int = 4,
        schema: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`schema`: the tables' namespace in the database, created with them; by default the user's.

        `settings`: of the server, for each connection.
        """
        self._schema = schema
        options = f"-c statement_timeout={STATEMENT_S}s -c timezone=UTC"
        options += "".join(f" -c {name}={value}" for name, value in (settings or {}).items())
        if schema is not None:
            options += f' -c search_path="{schema}",public'  # extensions are in `public`
        self._place = _place(url)
        self._failure: Exception | None = None
        """Of the latest attempt to connect. The pool itself only tells that it waited in vain."""
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            connection_class=self._connecting(),
            kwargs={
                "application_name": program,
                "autocommit": True,
                "connect_timeout": CONNECT_S,
                "options": options,
                "tcp_user_timeout": 1000 * SILENT_S,
                "keepalives_idle": SILENT_S // 2,
                "keepalives_interval": SILENT_S // 5,
            },
            min_size=0,
            max_size=connections,
            timeout=CONNECT_S,
            reconnect_timeout=CONNECT_S,
            check=_check,
            open=True,
            name=program,
        )

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection outside of a transaction: every statement commits by itself."""
        try:
            with self._pool.connection() as connection:
                try:
                    yield connection
                finally:
                    connection.__dict__["used_at"] = time.monotonic()
        except (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError) as error:
            if isinstance(error, psycopg.OperationalError) and error.sqlstate is not None and not _ended(error):
                raise
            reason = (self._failure or error) if isinstance(error, PoolTimeout) else error
            raise PostgresAwayError(reason, self._place) from error

    def _connecting(self) -> type[Connection]:
        """The class of the pool's connections, which remembers why one could not be made."""
        owner = self

        class Remembering(psycopg.Connection[tuple[Any, ...]]):
            @classmethod
            def connect(cls, conninfo: str = "", **options: Any) -> Self:
                try:
                    connection = super().connect(conninfo, **options)
                except psycopg.Error as error:
                    owner._failure = error
                    raise
                owner._failure = None
                return connection

        return Remembering

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One view of the data for all statements of the block."""
        with self.connection() as connection:
            # Part of BEGIN: a statement of its own would cost another round trip.
            connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            try:
                with connection.transaction():
                    yield connection
            finally:
                if not connection.closed:
                    connection.isolation_level, connection.read_only = None, None

    @contextmanager
    def writing(self, lock: int | None = None) -> Iterator[Connection]:
        """Commit the block, or roll it back when it raises.

        With `lock`, one transaction at a time, of all processes, holds that number. Readers that ask for what has a
        higher number than the last they saw need that: without it, numbers become visible out of order.
        """
        with self.connection() as connection, connection.transaction():
            if lock is not None:
                connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (_LOCKS, lock))
            yield connection

    def migrate(self, part: str, versions: Versions) -> None:
        """Create the tables of a part, or bring them to the latest of `versions`. Several processes may do so at once.

        Raises:
            NewerSchemaError: they are newer than this program.
        """
        latest = len(versions)
        with self.writing(lock=0) as connection:
            if self._schema is not None:
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_versions (part text PRIMARY KEY, version integer NOT NULL)"
            )
            row = connection.execute("SELECT version FROM schema_versions WHERE part = %s", (part,)).fetchone()
            present = int(row[0]) if row else 0
            if present > latest:
                raise NewerSchemaError(part, present, latest)
            if present == latest:
                return
            for script in versions[present:]:
                connection.execute(script)
            connection.execute(
                "INSERT INTO schema_versions VALUES (%s, %s) "
                "ON CONFLICT (part) DO UPDATE SET version = excluded.version",
                (part, latest),
            )


def _check(connection: Connection) -> None:
    """Replace a connection that broke while nobody used it. A round trip: not for one that was just in use."""
    if time.monotonic() - connection.__dict__.get("used_at", 0.0) > FRESH_S:
        ConnectionPool.check_connection(connection)


def check_address(address: str) -> str:
    """An address that psycopg can read. The error never repeats a part of it, which may be a password.

    Raises:
        ValueError: it is none.
    """
    if not address.startswith(("postgresql://", "postgres://")):
        raise ValueError("must begin with postgresql://, such as postgresql://pointsman@db/pointsman")
    form = "write postgresql://USER@HOST:PORT/DATABASE"
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(address).items()}
    except psycopg.ProgrammingError:
        raise ValueError(f"is not an address of PostgreSQL; {form}, and `%25` for `%` in a password") from None
    # What a plain character of a password would become, and an error of the connection would show.
    if not all(port.isdecimal() for port in parts.get("port", "0").split(",")):
        raise ValueError(f"is not an address of PostgreSQL; {form}, and `%2F` for `/` in a password")
    if "@" in parts.get("host", "") + parts.get("dbname", ""):
        raise ValueError(f"has two `@`; {form}, and `%40` for an `@` in a password")
    return address


def _ended(error: psycopg.OperationalError) -> bool:
    """The server or the connection is gone: class 08, or the server shuts down, crashed or starts (57P0x)."""
    state = error.sqlstate or ""
    return state.startswith(("08", "57P0")) or state == "53300"


def refusal(error: psycopg.Error) -> str:
    """What was refused, why, and the next step, in one line: psycopg's others show the place in the statement."""
    step = "The log of PostgreSQL has the details."
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        step = "Make the user of the address the owner of the database, or give it the right with GRANT."
    return f"PostgreSQL refused it: {_first_line(error).rstrip('.')}. {step}"


def _first_line(reason: object) -> str:
    """The first line: the others show the place in a statement, or repeat the advice of libpq."""
    return (str(reason).strip().splitlines() or [""])[0]


def _place(url: str) -> str:
    """Such as `db:5432, database pointsman`: what the address leaves open comes from libpq's defaults."""
    parts = {option.keyword.decode(): (option.val or b"").decode() for option in psycopg.pq.Conninfo.get_defaults()}
    parts |= {name: str(value) for name, value in conninfo_to_dict(url).items()}
    host = parts.get("host") or parts.get("hostaddr") or "the local socket"
    return f"{host}:{parts.get('port') or 5432}, database {parts.get('dbname') or parts.get('user')}"
