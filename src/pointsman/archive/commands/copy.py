"""`pointsman archive copy`: a store into another, such as from SQLite into PostgreSQL, and back."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from pointsman.archive.commands.commands import (
    BadRequestError,
    StoreName,
    json_option,
    note,
    print_json,
    store_options,
)
from pointsman.archive.settings import DATABASE, SCHEMA, ArchiveSettings, PostgresStore, SettingsError, read_settings


@click.command()
@click.option("--to", required=True, type=StoreName(), help="Store to copy into: a file, or an address of PostgreSQL.")
@click.option(
    "--schema",
    metavar="NAME",
    help="Where the tables are in PostgreSQL: pointsman_ID for the server ID. Default: pointsman_archive.",
)
@json_option
@store_options
def copy(settings: ArchiveSettings, to: Path | str, schema: str | None, as_json: bool) -> None:
    """Copy the store into another one. Can be repeated; what is there besides is kept."""
    from pointsman.archive.archive import open_storage
    from pointsman.archive.store.copying import copy_storage

    target = _target(to, schema)
    assert settings.database is not None
    if target == settings.database:
        raise BadRequestError("Both are the same store. Nothing was copied.")
    if isinstance(settings.database, Path) and not settings.database.exists():
        raise BadRequestError(f"There is no store {settings.database}. Nothing was copied.")
    source = open_storage(settings.database)
    try:
        copied_to = open_storage(target)
        try:
            copied = copy_storage(source, copied_to)
        finally:
            copied_to.close()
    finally:
        source.close()
    if as_json:
        print_json(dataclasses.asdict(copied))
    note(
        f"Copied {copied.documents} documents in {copied.collections} collections, {copied.vectors} new vectors, "
        f"{copied.context_items} context items and {copied.indexes} indexes into {target}."
    )


def _target(to: Path | str, schema: str | None) -> Path | PostgresStore:
    environment = {**os.environ, DATABASE: str(to), **({SCHEMA: schema} if schema else {})}
    try:
        found = read_settings(environment).database
    except SettingsError as error:
        raise BadRequestError(f"{error}.") from None
    assert found is not None
    return found
