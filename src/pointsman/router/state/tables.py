"""The tables of shared state in PostgreSQL, made at first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

from pointsman.core.postgres import Connection, NewerSchemaError, Postgres, PostgresAwayError, psycopg, refusal
from pointsman.router.state.key_values import StateAwayError

VERSIONS: tuple[LiteralString, ...] = (
    """
    CREATE SEQUENCE key_value_versions;
    CREATE TABLE key_values (
        key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL, version bigint NOT NULL, expires timestamptz
    );
    CREATE TABLE replicas (
        id text COLLATE "C" PRIMARY KEY, address text NOT NULL, seen timestamptz NOT NULL,
        earlier text[] NOT NULL
    );
    CREATE TABLE ended_sessions (
        digest bytea PRIMARY KEY, until timestamptz NOT NULL, ended timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX ended_sessions_ended ON ended_sessions (ended);
    CREATE TABLE usage (
        project text NOT NULL, word text NOT NULL, tool text NOT NULL, weight double precision NOT NULL,
        at timestamptz NOT NULL, PRIMARY KEY (project, word, tool)
    );
    CREATE INDEX usage_at ON usage (at);
    """,
    """
    ALTER TABLE replicas ADD COLUMN keys text NOT NULL DEFAULT ''; -- fingerprints, with spaces between them
    """,
)


class StateTables:
    """The database. Every use raises StateAwayError when it is away."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._ready = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Every statement commits by itself."""
        with self._reported(), self._postgres.connection() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._reported(), self._postgres.writing() as connection:
            yield connection

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            if not self._ready:
                self._postgres.migrate("state", VERSIONS)
                self._ready = True
            yield
        except (PostgresAwayError, NewerSchemaError) as error:
            raise StateAwayError(str(error)) from error
        except psycopg.Error as error:
            raise StateAwayError(refusal(error)) from error
