"""`pointsman state`: copy the state between the state folder and PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from pointsman.config.sections.server import SEARCH_DB_PATH
from pointsman.config.settings import Settings, read_settings
from pointsman.core.extras import install_command, postgres_is_installed
from pointsman.router.audit.database import FILE
from pointsman.router.audit.kept import READ_ERRORS, KeptRows, RowWriter, copy_rows
from pointsman.router.audit.query import count_in_journal
from pointsman.router.audit.sqlite_rows import SqliteRows
from pointsman.router.audit.store import Store
from pointsman.router.cli.common.archive_copy import ArchiveCopyError, copy_archives
from pointsman.router.cli.common.audit_source import audited_folder, config_of, database_of
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    edited_config_option,
    json_option,
    load_gateway_config,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.cli.common.owner import plural
from pointsman.router.state.key_values import KeyValues, StateAwayError, copy_values
from pointsman.router.state.sqlite_values import SqliteKeyValues

_SCHEMES = ("postgresql://", "postgres://")
_SHOWN_KEYS = 5


@click.group()
def state() -> None:
    """Copy the gateway's state between files and PostgreSQL."""


@state.command()
@click.option(
    "--to",
    "target",
    required=True,
    metavar="URL|FOLDER|sqlite",
    help="A database such as postgresql://pointsman@db/pointsman, a folder, or `sqlite` for the state folder.",
)
@click.option("--overwrite", is_flag=True, help="Also replace values that differ in the target.")
@edited_config_option
@state_dir_option
@json_option
def copy(target: str, overwrite: bool, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Copy the audit, the key-values and the archives. Nothing is deleted, and it can be repeated.

    To a URL, from the files of the state folder. To a folder, from the database that the configuration names. What a
    running gateway has in its journal comes when it is moved: stop the gateways, or copy once more at the end.

    Archives are those of the configuration that name no store of their own. Their documents are replaced in the target.
    """
    if "://" in target and not target.startswith(_SCHEMES):  # not repeated: it may have a password
        raise ConfigCommandError(
            "The target of --to is a URL, but not one of PostgreSQL. Write postgresql://USER@HOST:PORT/DATABASE, the "
            "path of a folder, or `sqlite`."
        )
    with report_config_errors():
        settings = read_settings()
        folder = audited_folder(state_dir, settings)
        database = None if target.startswith(_SCHEMES) else database_of(folder, settings, config_file)
    source = database.get_secret_value() if database else None
    ids = _archives(folder, settings, config_file)
    try:
        with _opened(target, folder, source) as (rows, values, to_rows, to_values):
            found, added = copy_rows(rows, to_rows)
            waiting = count_in_journal(rows)
            keys, written, differing = copy_values(values, to_values, overwrite=overwrite)
        archives = copy_archives(target, folder, source, ids)
    except (*READ_ERRORS, StateAwayError, ArchiveCopyError) as error:
        raise CommandError(f"The copy is not complete: {error} What was copied stays; repeat the command.") from None
    if as_json:
        figures = {"rows": found, "rowsAdded": added, "values": keys, "valuesWritten": written, "differing": differing}
        print_json(
            figures
            | {"rowsInJournal": waiting}
            | {"archives": {id_: asdict(copied) for id_, copied in archives.items()}}
        )
        return
    echo(f"Copied {added:,} of {plural(found, 'audit row')} and {written:,} of {plural(keys, 'value')}.")
    if found > added or keys > written + len(differing):
        note("The others were there.")
    if waiting:
        rest = f"The journal has {plural(waiting, 'more audit row')}"
        note(f"{rest}; the running gateway, or else the next start, moves {'it' if waiting == 1 else 'them'}.")
    if differing:
        shown = ", ".join(differing[:_SHOWN_KEYS])
        note(f"Left {plural(len(differing), 'value')} that the target has otherwise ({shown}); --overwrite takes ours.")
    for id_, copied in archives.items():
        found_there = f"{plural(copied.documents, 'document')} in {plural(copied.collections, 'collection')}"
        echo(f"Copied the archive {id_}: {found_there}, {plural(copied.vectors, 'new vector')}.")


def _archives(folder: Path, settings: Settings, config_file: Path | None) -> list[str]:
    """The ids of the bundled archives that are where the state is, as the configuration says."""
    path = config_of(folder, settings, config_file)
    if path is None or os.environ.get(SEARCH_DB_PATH):
        return []
    with report_config_errors():
        servers = load_gateway_config(path).servers
    return [id_ for id_, server in servers.items() if server.bundled and not server.names_store]


@contextmanager
def _opened(
    target: str, folder: Path, database: str | None
) -> Iterator[tuple[KeptRows, KeyValues, RowWriter, KeyValues]]:
    """Yield where to read rows and values, and where to write them."""
    if target.startswith(_SCHEMES):
        if not folder.is_dir():
            raise ConfigCommandError(
                f"State folder {folder} does not exist, so there is nothing to copy. Pass another one with --state-dir."
            )
        with _postgres(target, folder) as (_, to_values, to_rows), _files(folder) as (_store, values):
            yield SqliteRows(folder), values, to_rows, to_values
        return
    if database is None:
        raise ConfigCommandError(
            "No database is configured to copy from. Name the configuration with --config, set `state.database` in it, "
            "or set the variable POINTSMAN_DATABASE."
        )
    into = folder if target == "sqlite" else Path(target).expanduser()
    with _postgres(database, folder) as (rows, values, _):
        into.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _files(into) as (store, to_values):
            yield rows, values, store, to_values


@contextmanager
def _files(folder: Path) -> Iterator[tuple[Store, SqliteKeyValues]]:
    store, values = Store(folder / FILE), SqliteKeyValues(folder)
    try:
        yield store, values
    finally:
        store.close()
        values.close()


@contextmanager
def _postgres(url: str, folder: Path) -> Iterator[tuple[KeptRows, KeyValues, RowWriter]]:
    if not postgres_is_installed():
        raise ConfigCommandError(
            f"The driver for PostgreSQL is not installed; install it with `{install_command('postgres')}`."
        )
    from pointsman.core.postgres import Postgres, check_address
    from pointsman.router.audit.postgres.reader import PostgresRows
    from pointsman.router.audit.postgres.writer import PostgresWriter
    from pointsman.router.state.postgres_values import PostgresKeyValues
    from pointsman.router.state.tables import StateTables

    try:
        check_address(url)
    except ValueError as error:
        raise ConfigCommandError(f"The address of the database {error}.") from None
    postgres = Postgres(url, program="pointsman state copy", connections=2, hurried=True)
    tables = StateTables(postgres)
    try:
        with tables.connection():
            pass  # it answers: an empty source would not notice
        yield PostgresRows(postgres, folder), PostgresKeyValues(tables), PostgresWriter(postgres, None)
    finally:
        postgres.close()
