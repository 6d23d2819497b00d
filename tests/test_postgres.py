"""The server of the tests: each test has a database of its own, and a server that was stopped keeps its data."""

import signal

import psycopg
import pytest

from tests.postgres import Postgres


def test_a_database_is_empty_and_has_pgvector(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
        connection.execute("CREATE EXTENSION vector")
        assert connection.execute("SELECT '[1,2]'::halfvec <=> '[1,2]'").fetchone() == (0,)


def test_two_databases_are_apart(postgres: Postgres, database_url: str) -> None:
    assert postgres.new_database() != database_url


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_stopped_server_keeps_its_data(own_postgres: Postgres, how: signal.Signals) -> None:
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    own_postgres.stop(how)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_postgres.url(), connect_timeout=2)
    own_postgres.start()
    with psycopg.connect(own_postgres.url()) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
