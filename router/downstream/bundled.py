"""What a bundled server is told when it is started, also by the commands that work on its store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from pointsman.config.model import Server


def bundled_environment(server_id: str, server: Server, state_folder: Path) -> dict[str, str]:
    """The variables of its entry, where its store is, and the folders that it may read."""
    database = server.db or state_folder / f"{server.bundled}-{server_id}.db"
    return revealed(server.env) | {
        "SEARCH_DB_PATH": str(database),
        "POINTSMAN_ARCHIVE_ROOTS": json.dumps({name: str(path) for name, path in server.roots.items()}),
    }


def revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}
