"""PostgreSQL for the state of several gateways and for the archive: connections, transactions, the schema's version.

psycopg is an extra (`pointsman[postgres]`). Only what works on a configured address imports this module.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, LiteralString, Self, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from pointsman.core.postgres_silence import Silence, SilentServerError

__all__ = ["Connection", "NewerSchemaError", "Postgres", "PostgresAwayError", "check_address", "psycopg", "refusal"]

CONNECT_S = 3
"""How long a transaction waits for a connection, and a connection for the server."""
STATEMENT_S = 60
FRESH_S = 1.0
"""How long a connection is trusted after its last use."""
SILENT_S = 10
"""A machine that has been silent for so long is taken for dead."""
_LOOK_EVERY_S = 0.05
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
    (r"does not support SSL|no encryption", "Correct `sslmode` in the address, or turn TLS on at the server."),
    (r"certificate", "Correct `sslrootcert` and `sslmode` in the address, or the certificate of the server."),
    (r"^invalid |may not be used", "Correct the options after `?` in the address."),
)
# What libpq accepts, for the options that people set. libpq decides; this is for the message.
_VALUES: Mapping[str, str] = {
    "sslmode": "disable, allow, prefer, require, verify-ca or verify-full",
    "channel_binding": "disable, prefer or require",
    "gssencmode": "disable, prefer or require",
    "target_session_attrs": "any, read-write, read-only, primary, standby or prefer-standby",
    "load_balance_hosts": "disable or random",
    "sslnegotiation": "postgres or direct",
}
_NOWHERE = "/dev/null"  # as a folder of sockets, in which no connection can be made
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
        hurried: bool = False,
    ) -> None:
        """`schema`: the tables' namespace in the database, created with them; by default the user's.

        `settings`: of the server, for each connection. `hurried`: for a command, for which a person waits. A connection
        that is refused is then an error at once, unless the server is just starting. Otherwise it is tried again for
        CONNECT_S, so that a gateway does not notice a quick restart of the server.
        """
        self._hurried = hurried
        self._schema = schema
        options = f"-c statement_timeout={STATEMENT_S}s -c timezone=UTC"
        options += "".join(f" -c {name}={value}" for name, value in (settings or {}).items())
        if schema is not None:
            options += f' -c search_path="{schema}",public'  # extensions are in `public`
        self._place = _place(url)
        self._failure: Exception | None = None
        """Of the latest attempt to connect. The pool itself only tells that it waited in vain."""
        self._attempts = 0
        self._silence = Silence(url, program)
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
            with self._pooled() as connection:
                try:
                    yield connection
                finally:
                    connection.__dict__["used_at"] = time.monotonic()
        except (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError) as error:
            if isinstance(error, psycopg.OperationalError) and error.sqlstate is not None and not _ended(error):
                raise
            reason = (self._failure or error) if isinstance(error, PoolTimeout) else error
            raise PostgresAwayError(reason, self._place) from error

    @contextmanager
    def _pooled(self) -> Iterator[Connection]:
        connection = self._taken_at_once() if self._hurried else self._pool.getconn()
        try:
            with connection:
                yield connection
        finally:
            self._pool.putconn(connection)

    def _taken_at_once(self) -> Connection:
        """Take a connection, and give up when an attempt to make one has failed. Raises PoolTimeout."""
        attempts, until = self._attempts, time.monotonic() + CONNECT_S
        while True:
            try:
                return self._pool.getconn(timeout=_LOOK_EVERY_S)
            except PoolTimeout:
                failed = self._attempts > attempts and self._failure is not None and not _starts(self._failure)
                if failed or time.monotonic() >= until:
                    raise

    def _connecting(self) -> type[Connection]:
        """The class of the pool's connections: it remembers why one could not be made, and closes one that hangs."""
        owner = self

        class Watched(psycopg.Connection[tuple[Any, ...]]):
            @classmethod
            def connect(cls, conninfo: str = "", **options: Any) -> Self:
                try:
                    connection = super().connect(conninfo, **options)
                except psycopg.Error as error:
                    owner._failure = error
                    owner._attempts += 1
                    raise
                owner._failure = None
                return connection

            def wait(self, gen: Any, *options: Any, **named: Any) -> Any:
                try:
                    return super().wait(owner._silence.watched(gen, self.info), *options, **named)
                except SilentServerError as error:
                    owner._failure = error
                    self.pgconn.finish()
                    raise

        return Watched

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
    except psycopg.ProgrammingError as error:
        if unknown := re.search(r'invalid URI query parameter: "(.*)"', str(error)):
            raise ValueError(_unknown_option(unknown[1])) from None
        raise ValueError(f"is not an address of PostgreSQL; {form}, and `%25` for `%` in a password") from None
    # What a plain character of a password would become, and an error of the connection would show.
    if not all(port.isdecimal() for port in parts.get("port", "").split(",") if port):  # of two hosts, `,`
        raise ValueError(f"is not an address of PostgreSQL; {form}, and `%2F` for `/` in a password")
    if "@" in parts.get("host", "") + parts.get("dbname", ""):
        raise ValueError(f"has two `@`; {form}, and `%40` for an `@` in a password")
    if refused := _refused_options(parts):
        raise ValueError(refused)
    return address


def _unknown_option(name: str) -> str:
    known = [option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()]
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean `{near[0]}`?" if near else "; remove it, or correct its name"
    return f"is not an address of PostgreSQL: after `?` is an option that its client does not know{hint}"


def _refused_options(parts: Mapping[str, str]) -> str:
    """Why libpq refuses the values of options, which it checks before it connects; empty: it does not."""
    hosts = (parts.get("host") or parts.get("hostaddr", "")).count(",") + 1
    tried = {name: value for name, value in parts.items() if name != "hostaddr"}
    tried |= {"host": ",".join([_NOWHERE] * hosts), "password": "-"}  # with a password, no file is read for one
    connection = psycopg.pq.PGconn.connect_start(make_conninfo(**tried).encode())
    try:
        reason = _first_line(connection.error_message.decode(errors="replace"))
    finally:
        connection.finish()
    if not reason or reason.startswith("connection to server on socket"):
        return ""
    if reason.startswith("invalid port number"):
        return "has a port that is not between 1 and 65535"
    if named := re.match(r'invalid "?(\w+)"? value', reason):
        name = named[1]
        has = "has" if name in parts else "gets from the environment"
        values = f"; write {_VALUES[name]}" if name in _VALUES else ""
        return f"{has} a value of `{name}` that the client of PostgreSQL does not accept{values}"
    detail = "" if "@" in reason else f" ({reason})"  # a password with `/` and `?` in it may have become an option
    return f"has options after `?` that the client of PostgreSQL refuses{detail}"


def _starts(error: Exception) -> bool:
    """The server answers, and takes connections soon."""
    return (
        re.search(r"the database system is (starting up|shutting down|not yet accepting|in recovery)", str(error))
        is not None
    )


def _ended(error: psycopg.OperationalError) -> bool:
    """The server or the connection is gone: class 08, or the server shuts down, crashed or starts (57P0x)."""
    state = error.sqlstate or ""
    return state.startswith(("08", "57P0")) or state == "53300"


def refusal(error: psycopg.Error) -> str:
    """What was refused, why, and the next step, in one line: psycopg's others show the place in the statement."""
    step = "The log of PostgreSQL has the details."
    # Without a right on any schema of the search path, PostgreSQL knows no schema to create in.
    if isinstance(error, (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName)):
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
