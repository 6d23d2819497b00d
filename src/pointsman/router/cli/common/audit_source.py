"""Where a command reads the audit of a gateway: in its state folder, or in the database that its file names."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr

from pointsman.config.errors import ConfigError
from pointsman.config.loader import load_state
from pointsman.config.paths import FILE_NAME, find_config, state_folder, user_config
from pointsman.config.settings import Settings
from pointsman.router.audit.query import Source
from pointsman.router.audit.source import audit_source
from pointsman.router.cli.common.options import CommandError, note
from pointsman.router.serving.state_folder import StateFolderError, find_running, refuse_replica_folder


def audited_folder(option: Path | None, settings: Settings) -> Path:
    """Return the state folder, which has to be that of all replicas. Raises CommandError, NoHomeError."""
    folder = state_folder(option, settings, os.environ)
    try:
        refuse_replica_folder(folder)
    except StateFolderError as error:
        raise CommandError(str(error)) from None
    return folder


def audit_of(folder: Path, settings: Settings, option: Path | None = None) -> Source:
    """Return where the rows of the gateway with this state folder are. For `option` see `database_of`."""
    return audit_source(folder, database_of(folder, settings, option))


def where_looked(folder: Path, settings: Settings, option: Path | None) -> str:
    """Say by which file the rows are in the state folder, if that is a guess: the gateway may have had another."""
    if option is not None or find_running(folder) is not None:
        return ""
    if (path := config_of(folder, settings)) is not None:
        return f" No gateway runs, and {path} names no database; --config FILE names another configuration."
    places = settings.config or f"./{FILE_NAME} and {user_config(settings, os.environ)}"
    return (
        f" No gateway runs, and there is no configuration ({places}) that could name a database; --config FILE names "
        "the one that the gateway was started with."
    )


def database_of(folder: Path, settings: Settings, option: Path | None = None) -> SecretStr | None:
    """Return the database of the running gateway, or of the one that would be started; None: it has files only.

    `option`: the file that --config names. Raises ConfigError if that one cannot be used.
    """
    if settings.database is not None:
        return settings.database
    path = config_of(folder, settings, option)
    try:
        return load_state(path, os.environ).database if path is not None else None
    except ConfigError as error:
        if option is not None:
            raise
        note(f"Reading the state folder alone, because the configuration cannot be used: {error}")
        return None


def config_of(folder: Path, settings: Settings, option: Path | None = None) -> Path | None:
    """Return the configuration that is named, or that of the running gateway, or of the one that would be started.

    None: there is none.
    """
    if option is not None:
        return option
    running = find_running(folder)
    if running is not None and running.configuration:
        path: Path | None = Path(running.configuration)
    else:
        path = find_config(None, settings, os.environ, Path.cwd())
    return path if path is not None and path.exists() else None
