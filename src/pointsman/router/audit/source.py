"""Where the audit of a configuration is read: the state folder, or the database that gateways share."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from pointsman.router.audit.query import Source

_CONNECTIONS = 2


def audit_source(state_dir: Path, database: SecretStr | None) -> Source:
    """For a command, which ends soon: the connections end with the process."""
    if database is None:
        return state_dir
    from pointsman.core.postgres import Postgres  # psycopg is an extra, and takes a tenth of a second
    from pointsman.router.audit.postgres.reader import PostgresRows

    postgres = Postgres(
        database.get_secret_value(), program="pointsman command", connections=_CONNECTIONS, hurried=True
    )
    return PostgresRows(postgres, state_dir)
