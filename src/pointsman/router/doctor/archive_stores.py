"""Checks of archives in PostgreSQL: that pgvector is there, or that the role may create it, with the tables."""

from __future__ import annotations

from typing import NamedTuple

from pointsman.config.sections.values import is_database_address
from pointsman.router.doctor.findings import Finding, Inspected, unread_text
from pointsman.router.downstream.bundled import schema_of, store_of

_CHECK = "archive"
_OLDEST_PGVECTOR = (0, 8)
_LOOK = """
SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE'),
    EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s),
    (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
    (SELECT max(version) FROM pg_available_extension_versions WHERE name = 'vector'),
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        OR EXISTS (SELECT 1 FROM pg_available_extension_versions WHERE name = 'vector' AND trusted)
"""


class _Rights(NamedTuple):
    user: str
    database: str
    may_create: bool  # schemas, and extensions that are trusted
    has_schema: bool
    installed: str | None  # the version of pgvector in the database
    available: str | None  # on the server
    may_install: bool  # as a superuser, or because the extension is trusted


def check_archive_stores(inspected: Inspected) -> list[Finding]:
    """Report what an archive would refuse at its first call: a role that may create tables may lack the extension."""
    config = inspected.config
    if config is None:
        return []
    findings: list[Finding] = []
    for server_id, server in config.servers.items():
        if not (server.bundled and server.enabled):
            continue
        if unread := config.unread_secrets(f"servers.{server_id}.db", "state.database"):
            findings.append(Finding(_CHECK, "note", unread_text(unread, f"the store of `{server_id}` was not checked")))
            continue
        database = config.state.database
        store = store_of(server_id, server, inspected.state_dir, inspected.environ, database)
        if not is_database_address(store):
            continue
        if database is not None and store == database.get_secret_value() and inspected.database_is_away:
            continue  # `check_database` has said it
        findings.append(_look_at(server_id, store))
    return findings


def _look_at(server_id: str, address: str) -> Finding:
    from pointsman.core.postgres import Postgres, PostgresAwayError, psycopg, refusal

    name = f"The store of archive `{server_id}` in PostgreSQL"
    postgres = Postgres(address, program="pointsman doctor", connections=1, hurried=True)
    try:
        with postgres.connection() as connection:
            row = connection.execute(_LOOK, (schema_of(server_id),)).fetchone()
            assert row is not None
    except PostgresAwayError as error:
        return Finding(_CHECK, "problem", f"{name} cannot be used: {error}")
    except psycopg.Error as error:
        return Finding(_CHECK, "problem", f"{name} cannot be used: {refusal(error)}")
    finally:
        postgres.close()
    rights = _Rights(*row)
    if problem := _problem(rights):
        return Finding(_CHECK, "problem", f"{name} cannot be used: {problem}.")
    return Finding(_CHECK, "ok", f"{name} can be used, with pgvector {rights.installed or rights.available}.")


def _problem(rights: _Rights) -> str:
    user, database = rights.user, rights.database
    if rights.installed is None and rights.available is None:
        return "the server has no pgvector. Install it there (the extension `vector`, 0.8 or newer)"
    if rights.installed is None and not (rights.may_install and rights.may_create):
        return (
            f"the database `{database}` lacks the extension `vector`, and the user `{user}` may not create it. Let a "
            f"superuser run `CREATE EXTENSION vector` in that database once"
        )
    if _version(rights.installed or rights.available or "") < _OLDEST_PGVECTOR:
        step = "Install 0.8 or newer, and run `ALTER EXTENSION vector UPDATE` in that database"
        return f"pgvector in the database `{database}` is {rights.installed or rights.available}. {step}"
    if not rights.has_schema and not rights.may_create:
        step = f"run `ALTER DATABASE {database} OWNER TO {user}`"
        return f"the user `{user}` may not create schemas in the database `{database}`. Let its owner {step}"
    return ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
