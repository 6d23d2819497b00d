"""The environment and the store of a bundled server, for the server itself and for commands that use its store."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from pointsman.config.errors import ConfigError, ConfigProblem
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.server import SEARCH_DB_PATH, Server
from pointsman.config.sections.values import is_database_address

SEARCH_DB_SCHEMA = "SEARCH_DB_SCHEMA"  # the environment variable that names the tables' namespace in PostgreSQL
_MOST_SCHEMA_CHARS = 63  # PostgreSQL's limit


def bundled_environment(
    server_id: str,
    server: Server,
    state_folder: Path,
    environ: Mapping[str, str],
    state_database: SecretStr | None = None,
) -> dict[str, str]:
    """The variables of its entry, its store, and the folders that it may read."""
    store = store_of(server_id, server, state_folder, environ, state_database)
    return {
        **(libpq_variables(environ) if is_database_address(store) else {}),
        **secret_values(server.env),
        SEARCH_DB_PATH: store,
        SEARCH_DB_SCHEMA: schema_of(server_id),
        "POINTSMAN_ARCHIVE_ROOTS": json.dumps({name: str(path) for name, path in server.roots.items()}),
    }


def store_of(
    server_id: str,
    server: Server,
    state_folder: Path,
    environ: Mapping[str, str],
    state_database: SecretStr | None = None,
) -> str:
    """The path or address of the store.

    `db`, else $SEARCH_DB_PATH of the entry, else that of `environ`, else `state.database`, else a file in the state
    folder. The server and the commands both resolve it here. `check_stores` guarantees that at most one entry takes it
    from `environ`.
    """
    if server.db is not None:
        return server.db.get_secret_value() if isinstance(server.db, SecretStr) else str(server.db)
    if named := server.store_variable or environ.get(SEARCH_DB_PATH):
        return named if is_database_address(named) else str(Path(named).absolute())
    if state_database is not None:
        return state_database.get_secret_value()
    return str(file_of(server_id, state_folder))


def file_of(server_id: str, state_folder: Path) -> Path:
    """The store of an archive that names none, without `state.database`."""
    return state_folder / f"archive-{server_id}.db"


def schema_of(server_id: str) -> str:
    """The namespace of an archive's tables in PostgreSQL: archives keep apart, gateways with the same entry share."""
    schema = f"pointsman_{server_id}"
    return schema if len(schema) <= _MOST_SCHEMA_CHARS else f"{schema[:50]}_{zlib.crc32(schema.encode()):08x}"


def libpq_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """PGPASSFILE, PGSSLROOTCERT and the like, which the client library of PostgreSQL reads."""
    return {name: value for name, value in environ.items() if name.startswith("PG")}


def check_stores(config: GatewayConfig, file: Path, environ: Mapping[str, str]) -> None:
    """Refuse a variable that would give two archives one store: separate archives keep projects apart.

    Raises:
        ConfigError: $SEARCH_DB_PATH is set, and more than one archive names no store of its own.
    """
    named = environ.get(SEARCH_DB_PATH)
    without = [id_ for id_, server in config.servers.items() if server.bundled and not server.names_store]
    if not named or len(without) < 2:
        return
    reason = (
        f"{SEARCH_DB_PATH} is set in the environment and would give the archives {', '.join(without)} one store. "
        f"Write `db: {named}` into the entry that it is meant for and another `db` into each other one, "
        f"or unset {SEARCH_DB_PATH}"
    )
    raise ConfigError([ConfigProblem(str(file), None, None, f"servers.{without[0]}", reason)])


def secret_values(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}
