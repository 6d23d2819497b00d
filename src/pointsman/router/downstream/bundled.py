"""The environment and the store of a bundled server, for the server itself and for commands that use its store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from pointsman.config.errors import ConfigError, ConfigProblem
from pointsman.config.model import SEARCH_DB_PATH, GatewayConfig, Server


def bundled_environment(
    server_id: str, server: Server, state_folder: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables of its entry, the path of its store, and the folders that it may read."""
    return secret_values(server.env) | {
        SEARCH_DB_PATH: str(store_of(server_id, server, state_folder, environ)),
        "POINTSMAN_ARCHIVE_ROOTS": json.dumps({name: str(path) for name, path in server.roots.items()}),
    }


def store_of(server_id: str, server: Server, state_folder: Path, environ: Mapping[str, str]) -> Path:
    """`db`, else $SEARCH_DB_PATH of the entry, else that of `environ`, else a file in the state folder.

    The server and the commands both resolve the path here. `check_stores` guarantees that at most one entry takes it
    from `environ`.
    """
    if server.db is not None:
        return server.db
    if named := server.store_variable or environ.get(SEARCH_DB_PATH):
        return Path(named).absolute()
    return state_folder / f"{server.bundled}-{server_id}.db"


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
