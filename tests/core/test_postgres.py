"""Transactions on a real PostgreSQL: one writer at a time, one view for a reader, and a server that goes away."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pointsman.core.postgres import NewerSchemaError, Postgres, PostgresAwayError, check_address, psycopg
from tests.postgres import Postgres as Server

TABLES = (
    "CREATE TABLE items (number bigint PRIMARY KEY, name text)",
    "ALTER TABLE items ADD note text; CREATE INDEX ON items (name)",
)


@pytest.fixture
def database(database_url: str) -> Iterator[Postgres]:
    database = Postgres(database_url, program="test", connections=8)
    yield database
    database.close()


def test_a_transaction_commits_or_rolls_back(database: Postgres) -> None:
    database.migrate("items", TABLES)
    with database.writing() as connection:
        connection.execute("INSERT INTO items VALUES (1, 'a')")
    with pytest.raises(psycopg.errors.UniqueViolation), database.writing() as connection:
        connection.execute("INSERT INTO items VALUES (2, 'b'); INSERT INTO items VALUES (1, 'b')")
    with database.reading() as connection:
        assert connection.execute("SELECT number, name, note FROM items").fetchall() == [(1, "a", None)]


def test_a_reader_has_one_view_and_cannot_write(database: Postgres) -> None:
    database.migrate("items", TABLES)
    with database.reading() as connection:
        before = connection.execute("SELECT count(*) FROM items").fetchone()
        with database.writing() as other:
            other.execute("INSERT INTO items VALUES (1, 'a')")
        assert connection.execute("SELECT count(*) FROM items").fetchone() == before
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), database.reading() as connection:
        connection.execute("INSERT INTO items VALUES (2, 'b')")


def test_a_follower_of_growing_numbers_misses_nothing_with_four_writers(database: Postgres) -> None:
    database.migrate("items", TABLES)

    def write() -> None:
        for _ in range(40):
            with database.writing(lock=1) as connection:
                connection.execute("INSERT INTO items SELECT coalesce(max(number), 0) + 1, 'a' FROM items")

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while len(seen) < 160:
        alive = any(writer.is_alive() for writer in writers)
        with database.reading() as connection:
            rows = connection.execute(
                "SELECT number FROM items WHERE number > %s ORDER BY number", (seen[-1] if seen else 0,)
            ).fetchall()
        seen += [number for (number,) in rows]
        if not alive and not rows:
            break
    assert seen == list(range(1, 161))


def test_processes_that_start_at_once_make_the_tables_once(database_url: str) -> None:
    databases = [Postgres(database_url, program="test") for _ in range(4)]
    starts = [threading.Thread(target=database.migrate, args=("items", TABLES)) for database in databases]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    with databases[0].reading() as connection:
        assert connection.execute("SELECT * FROM schema_versions").fetchall() == [("items", 2)]
    for database in databases:
        database.close()


def test_a_newer_schema_is_refused_and_an_older_one_migrated(database: Postgres) -> None:
    database.migrate("items", TABLES[:1])
    database.migrate("items", TABLES)
    with pytest.raises(NewerSchemaError, match=r"written by a newer Pointsman \(version 2.*up to 1\)\. Upgrade"):
        database.migrate("items", TABLES[:1])


def test_a_server_that_goes_away_is_an_error_in_words_and_comes_back(own_postgres: Server) -> None:
    database = Postgres(own_postgres.url(), program="test")
    database.migrate("items", TABLES)
    own_postgres.stop(signal.SIGQUIT)
    with pytest.raises(PostgresAwayError, match="PostgreSQL cannot be reached"), database.reading():
        pass
    own_postgres.start()
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (0,)
    with pytest.raises(PostgresAwayError), database.writing():
        own_postgres.stop(signal.SIGQUIT)
    database.close()


def failure(url: str) -> str:
    database = Postgres(url, program="test")
    try:
        with pytest.raises(PostgresAwayError) as raised, database.reading():
            pass
    finally:
        database.close()
    said = str(raised.value)
    assert "hunter2" not in said
    assert "\n" not in said
    return said


def test_a_connection_that_is_not_made_is_told_with_the_place_the_reason_and_the_next_step(
    own_postgres: Server,
) -> None:
    place = f"127.0.0.1:{own_postgres.port}"
    address = f"postgresql://me:hunter2@{place}"
    assert failure(f"{address}/nowhere") == (
        f'PostgreSQL refused the connection at {place}, database nowhere (role "me" does not exist). '
        "Create that user (`CREATE ROLE ... LOGIN`), or correct the user in the address."
    )
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE me LOGIN PASSWORD 'another'")
    assert failure(f"{address}/nowhere") == (
        f'PostgreSQL refused the connection at {place}, database nowhere (database "nowhere" does not exist). '
        "Create it (`CREATE DATABASE`), or correct the database in the address."
    )
    own_postgres.require_passwords()
    assert failure(f"{address}/postgres") == (
        f'PostgreSQL refused the connection at {place}, database postgres (password authentication failed for user "me"'
        "). Correct the user and the password in the address."
    )
    own_postgres.stop()
    assert failure(f"{address}/postgres") == (
        f"PostgreSQL cannot be reached at {place}, database postgres (Connection refused). "
        "Try again; if it lasts, check that it runs and listens there."
    )


def test_an_unknown_host_is_told_as_one() -> None:
    said = failure("postgresql://me:hunter2@no-such-host.invalid/x")
    assert "PostgreSQL cannot be reached at no-such-host.invalid:5432, database x (" in said
    assert said.endswith("). Correct the host in the address, or check this machine's DNS.")


def test_the_reason_of_an_earlier_failure_is_forgotten_once_it_works(own_postgres: Server) -> None:
    own_postgres.stop()
    database = Postgres(own_postgres.url(), program="test", connections=1)
    with pytest.raises(PostgresAwayError, match="Connection refused"), database.reading():
        pass
    own_postgres.start()
    with database.reading(), pytest.raises(PostgresAwayError, match=r"couldn't get a connection"), database.reading():
        pass
    database.close()


def test_an_address_is_checked() -> None:
    assert check_address("postgresql://u@127.0.0.1/db")
    with pytest.raises(ValueError, match="must begin with postgresql://"):
        check_address("mysql://u@127.0.0.1/db")
    with pytest.raises(ValueError, match="is not an address of PostgreSQL"):
        check_address("postgresql://u@127.0.0.1/db?nonsense=1")
    for good in ("u@db.invalid/x?sslmode=verify-full&sslrootcert=/nowhere", "u@a,b/x?target_session_attrs=any", "/x"):
        assert check_address(f"postgresql://{good}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("sslmode=banana", "`sslmode` that the client of PostgreSQL does not accept; write disable, allow, prefer"),
        ("channel_binding=banana", "`channel_binding` that the client"),
        ("target_session_attrs=banana", "write any, read-write, read-only"),
        ("ssl_min_protocol_version=banana", "`ssl_min_protocol_version` that the client"),
        ("sslmod=require", "an option that its client does not know; did you mean `sslmode`?"),
        ("banana=1", "an option that its client does not know; remove it"),
        ("sslnegotiation=direct", r'refuses \(weak sslmode "prefer" may not be used with sslnegotiation=direct'),
        ("service=banana", r'refuses \(definition of service "banana" not found\)'),
        ("port=99999", "has a port that is not between 1 and 65535"),
    ],
)
def test_options_that_the_client_library_refuses_are_refused_before_a_connection(options: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        check_address(f"postgresql://me:hunter2@db.invalid/x?{options}")
    assert "hunter2" not in str(raised.value)


def test_options_that_the_server_cannot_meet_are_told_as_such(own_postgres: Server) -> None:
    said = failure(f"postgresql://me:hunter2@127.0.0.1:{own_postgres.port}/x?sslmode=require")
    assert said.endswith("Correct `sslmode` in the address, or turn TLS on at the server.")


def test_a_command_does_not_wait_where_a_connection_is_refused(own_postgres: Server) -> None:
    """By attempts, not by time: the pool repeats a failed one after a second at the earliest."""
    own_postgres.stop()
    database = Postgres(own_postgres.url(), program="test", hurried=True)
    with pytest.raises(PostgresAwayError, match="Connection refused"), database.reading():
        pass
    assert database._attempts == 1
    own_postgres.start()
    with database.reading() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    database.close()


def test_a_command_waits_for_a_server_that_is_starting() -> None:
    """A server that says so, and then closes the connection: a real one is rarely caught in that moment."""
    said = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
    answer = b"E" + (len(said) + 4).to_bytes(4) + said
    attempts = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            nonlocal attempts
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)
                attempts += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"postgresql://me@127.0.0.1:{listener.getsockname()[1]}/x?sslmode=disable&gssencmode=disable"
        database = Postgres(url, program="test", hurried=True)
        with pytest.raises(PostgresAwayError, match="starting up"), database.reading():
            pass
        database.close()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert attempts > 1


NOTICED_S = 5.0


def test_a_server_that_hangs_is_away_and_then_back(own_postgres: Server) -> None:
    database = Postgres(own_postgres.url(), program="test")
    with database.connection() as first, database.connection() as second:  # two connections in the pool
        first.execute("SELECT 1")
        second.execute("SELECT 1")
    with own_postgres.hanging():
        began = time.monotonic()
        with pytest.raises(PostgresAwayError, match=r"cannot be reached at .* \(.*no answer"):
            _ask(database)
        with pytest.raises(PostgresAwayError, match="cannot be reached"):
            _ask(database)
        assert time.monotonic() - began < 2 * NOTICED_S
    _ask(database)
    database.close()


def test_every_wait_on_a_server_that_hangs_ends(own_postgres: Server) -> None:
    database = Postgres(own_postgres.url(), program="test", connections=8)
    database.migrate("items", TABLES)
    waits = (_wait_in_transaction, _wait_in_view, _wait_in_copy, _wait_in_server_cursor)
    inside, failed = threading.Barrier(len(waits) + 1), list[str]()

    def run(wait: Callable[[Postgres, Callable[[], object]], None]) -> None:
        try:
            wait(database, lambda: (inside.wait(), hung.wait()))
        except PostgresAwayError:
            failed.append(wait.__name__)

    hung = threading.Event()
    threads = [threading.Thread(target=run, args=(wait,)) for wait in waits]
    for thread in threads:
        thread.start()
    inside.wait()
    with own_postgres.hanging():
        hung.set()
        until = time.monotonic() + NOTICED_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        assert sorted(failed) == sorted(wait.__name__ for wait in waits)
    database.close()


def _ask(database: Postgres) -> None:
    with database.connection() as connection:
        connection.execute("SELECT 1")


def _wait_in_transaction(database: Postgres, until_it_hangs: Callable[[], object]) -> None:
    with database.writing(lock=7) as connection:
        until_it_hangs()
        connection.execute("INSERT INTO items VALUES (1, 'a')")


def _wait_in_view(database: Postgres, until_it_hangs: Callable[[], object]) -> None:
    with database.reading() as connection:
        connection.execute("SELECT 1")
        until_it_hangs()  # what waits is the end of the transaction


def _wait_in_copy(database: Postgres, until_it_hangs: Callable[[], object]) -> None:
    with database.connection() as connection, connection.cursor().copy("COPY items FROM STDIN") as copy:
        until_it_hangs()
        copy.write_row((2, "b", None))


def _wait_in_server_cursor(database: Postgres, until_it_hangs: Callable[[], object]) -> None:
    with database.reading() as connection, connection.cursor(name="rows") as cursor:
        cursor.itersize = 1
        rows = iter(cursor.execute("SELECT generate_series(1, 3)"))
        next(rows)
        until_it_hangs()
        next(rows)


def test_a_long_statement_on_a_server_that_answers_is_not_cut_off(database: Postgres) -> None:
    with database.connection() as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(6)").fetchall() == [(1,)]
