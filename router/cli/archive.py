"""`pointsman archive`: fill, look into and search the store that the gateway hands to its bundled server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from pointsman.archive import cli
from pointsman.archive.graph_command import graph
from pointsman.archive.ingest.command import ingest
from pointsman.archive.settings import DATABASE, ArchiveSettings, BadSettings
from pointsman.archive.settings import read_settings as read_archive_settings
from pointsman.config.loading import load
from pointsman.config.model import Server
from pointsman.config.places import state_folder
from pointsman.config.settings import read_settings
from pointsman.router.cli.options import ConfigRefusal, chosen_config, clear_errors
from pointsman.router.downstream.bundled import bundled_environment


@click.group()
@click.pass_context
def archive(ctx: click.Context) -> None:
    """Fill and search the archive: your own notes, papers and pages."""
    ctx.obj = find_settings


for command in (ingest, cli.list_, cli.stats, cli.search, cli.remove, cli.embed, graph):
    archive.add_command(command)


def find_settings(
    *, db: Path | None, server: str | None, config: Path | None, state_dir: Path | None
) -> ArchiveSettings:
    """`--db`, else --server in the configuration, else $SEARCH_DB_PATH, else the only archive in the configuration."""
    environment: Mapping[str, str] = os.environ
    if db is not None:
        environment = {**os.environ, DATABASE: str(db)}
    elif server is not None or not os.environ.get(DATABASE):
        environment = os.environ | _configured(server, config, state_dir)
    try:
        return read_archive_settings(environment)
    except BadSettings as error:
        raise ConfigRefusal(f"{error}.") from None


def _configured(server_id: str | None, config: Path | None, state_dir: Path | None) -> dict[str, str]:
    """What the gateway would tell that server."""
    with clear_errors():
        settings = read_settings()
        path = chosen_config(config, settings)
        loaded = load(path, os.environ)
        folder = state_folder(state_dir, settings, os.environ)
    chosen = _chosen({id_: each for id_, each in loaded.servers.items() if each.bundled}, server_id, path)
    return bundled_environment(chosen, loaded.servers[chosen], folder)


def _chosen(archives: Mapping[str, Server], server_id: str | None, path: Path) -> str:
    if server_id is not None and server_id in archives:
        return server_id
    names = ", ".join(archives)
    if not archives:
        raise ConfigRefusal(
            f"{path} names no archive. Add `archive: {{bundled: archive}}` to `servers`, or name a store with --db."
        )
    if server_id is not None:
        raise ConfigRefusal(f"`{server_id}` is no bundled archive in {path}. There is: {names}.")
    if len(archives) > 1:
        raise ConfigRefusal(f"{path} names several archives. Choose with --server: {names}.")
    return next(iter(archives))
