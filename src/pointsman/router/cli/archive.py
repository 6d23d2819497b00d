"""`pointsman archive`: fill, inspect and search the store of a bundled archive server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from pointsman.archive.commands import commands as cli
from pointsman.archive.commands.context import context
from pointsman.archive.commands.copy import copy
from pointsman.archive.commands.graph import graph
from pointsman.archive.commands.ingest import ingest
from pointsman.archive.settings import DATABASE, SCHEMA, ArchiveSettings, SettingsError
from pointsman.archive.settings import read_settings as read_archive_settings
from pointsman.config.paths import find_config, state_folder
from pointsman.config.sections.server import Server
from pointsman.config.settings import read_settings
from pointsman.router.cli.common.options import (
    ConfigCommandError,
    load_gateway_config,
    note,
    report_config_errors,
    require_config,
)
from pointsman.router.downstream.bundled import bundled_environment, schema_of


@click.group()
@click.pass_context
def archive(ctx: click.Context) -> None:
    """Fill and search the archive of your notes, papers and web pages."""
    ctx.obj = find_settings


for command in (ingest, cli.list_, cli.stats, cli.search, cli.remove, cli.embed, graph, context, copy):
    archive.add_command(command)


def find_settings(
    *, db: Path | str | None, server: str | None, config: Path | None, state_dir: Path | None
) -> ArchiveSettings:
    """Use --db, else the store of --server or of the only configured archive, else $SEARCH_DB_PATH.

    In PostgreSQL, --server also names the tables' namespace; by default that of the entry `archive`.
    """
    if db is not None:
        environment = {**os.environ, DATABASE: str(db)}
        if server is not None:
            environment[SCHEMA] = schema_of(server)
    else:
        environment = os.environ | _server_environment(server, config, state_dir)
    try:
        return read_archive_settings(environment)
    except SettingsError as error:
        raise ConfigCommandError(f"{error}.") from None


def _server_environment(server_id: str | None, config: Path | None, state_dir: Path | None) -> dict[str, str]:
    """Return the environment that the gateway would give that server.

    Empty if $SEARCH_DB_PATH names the store and no archive is configured.
    """
    named = os.environ.get(DATABASE)
    with report_config_errors():
        settings = read_settings()
        if named and server_id is None and find_config(config, settings, os.environ, Path.cwd()) is None:
            return {}
        path = require_config(config, settings)
        loaded = load_gateway_config(path)
        folder = state_folder(state_dir, settings, os.environ)
    archives = {id_: each for id_, each in loaded.servers.items() if each.bundled}
    if named and server_id is None and not archives:
        return {}
    chosen = _choose_archive(archives, server_id, path)
    unread = loaded.unread_secrets(f"servers.{chosen}", "state.database")
    if unread and not (named and unread == ("state.database",)):
        raise ConfigCommandError(
            f"`{unread[0]}` in {path} is read from a command or a keyring by the gateway only. Pass --db."
        )
    if named and archives[chosen].names_store:
        note(
            f"Ignoring {DATABASE}: `servers.{chosen}` in {path} names its own store. Pass --db FILE to use another one."
        )
    return bundled_environment(chosen, archives[chosen], folder, os.environ, settings.database or loaded.state.database)


def _choose_archive(archives: Mapping[str, Server], server_id: str | None, path: Path) -> str:
    if server_id is not None and server_id in archives:
        return server_id
    names = ", ".join(archives)
    if not archives:
        raise ConfigCommandError(
            f"{path} configures no archive. Add `archive: {{bundled: archive}}` to `servers`, or pass --db FILE."
        )
    if server_id is not None:
        raise ConfigCommandError(f"`{server_id}` is not a bundled archive in {path}. Available: {names}.")
    if len(archives) > 1:
        raise ConfigCommandError(f"{path} configures several archives. Choose one with --server: {names}.")
    return next(iter(archives))
