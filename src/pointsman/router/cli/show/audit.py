"""`pointsman audit`: print audit rows."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from pointsman.config.settings import read_settings
from pointsman.core.given_path import GivenPath
from pointsman.router.audit.database import NewerSchemaError
from pointsman.router.audit.display import Table, in_blocks, json_lines
from pointsman.router.audit.kept import AuditDatabaseError
from pointsman.router.audit.query import Filter, Source, follow, read_rows
from pointsman.router.audit.rows import ENDINGS, KINDS, Row
from pointsman.router.cli.common.audit_source import audit_of, audited_folder, where_looked
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    edited_config_option,
    note,
    report_config_errors,
)

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"(\d{1,9})([smhdw])")
_Command = TypeVar("_Command", bound=Callable[..., None])


class Moment(click.ParamType[int]):
    """A time span before now (`15m`) or an ISO 8601 time; converts to milliseconds since the epoch."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        ago = _AGO.fullmatch(value)
        if ago:
            return int((time.time() - int(ago[1]) * _UNITS_S[ago[2]]) * 1000)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"`{value}` is neither a time span (15m, 2h, 7d) nor an ISO 8601 time (2026-11-16T08:30:00Z).",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)  # rows show UTC
        return int(moment.timestamp() * 1000)


def row_options(command: _Command) -> _Command:
    """Add the options that `list` and `tail` share."""
    for option in reversed(
        (
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
            click.option(
                "--since",
                "since_ms",
                type=Moment(),
                help="Only rows since this time: a span back from now (30s, 15m, 2h, 7d, 1w), or ISO 8601 (UTC).",
            ),
            click.option(
                "--until", "until_ms", type=Moment(), help="Only rows before this time; same formats as --since."
            ),
            click.option("--token", help='Only this token id; "" for rows without a token.'),
            click.option("--project", help='Only this project id; "" for rows without a project.'),
            click.option("--tool", "tool_key", help="Only this tool key, for example time:convert_time."),
            click.option("--server", "server_id", help="Only this server id."),
            click.option("--kind", type=click.Choice(KINDS), help="Only rows of this kind."),
            click.option("--outcome", type=click.Choice(ENDINGS), help="Only calls that ended this way."),
            click.option("--code", help="Only this error code, for example timeout or unknown_tool."),
            edited_config_option,
            click.option("--state-dir", type=GivenPath(file_okay=False), help="The gateway's state folder."),
        )
    ):
        command = option(command)
    return command


def report_read_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn failures to read the audit into one sentence on stderr."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (sqlite3.Error, NewerSchemaError, AuditDatabaseError) as error:
            raise CommandError(f"Could not read the state database: {error}") from None
        except PermissionError as error:
            raise CommandError(
                f"No permission to read {error.filename}. Run this command as the user that runs the gateway."
            ) from None
        except NotADirectoryError as error:
            raise CommandError(
                f"{error.filename} is not a folder, but the journal needs one there. Move it away; "
                "the gateway then creates the folder."
            ) from None

    return run


@click.group()
def audit() -> None:
    """Show who searched for or called which tool, and how it ended."""


@audit.command("list")
@row_options
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the latest N rows.")
@report_read_errors
def list_(as_json: bool, limit: int | None, config_file: Path | None, state_dir: Path | None, **wanted: Any) -> None:
    """Print rows, oldest first."""
    source = _source(state_dir, config_file)
    count = _print(read_rows(source, Filter(**wanted), newest=limit), as_json, Table())
    if not count and not as_json:
        note(_nothing_found(source, config_file))


@audit.command()
@row_options
@click.option(
    "-n", "--lines", default=20, show_default=True, type=click.IntRange(min=0), help="Number of earlier rows to print."
)
@click.option("-f", "--follow", "following", is_flag=True, help="Keep running and print each row when its call ends.")
@report_read_errors
def tail(
    as_json: bool, lines: int, following: bool, config_file: Path | None, state_dir: Path | None, **wanted: Any
) -> None:
    """Print the latest rows; -f follows new ones."""
    source = _source(state_dir, config_file)
    chosen = Filter(**wanted)
    if not following:
        _print(read_rows(source, chosen, newest=lines), as_json, Table())
        return
    table = Table(steady=True)
    try:
        for rows in follow(source, chosen, lines, on_outage=_say_outage):
            _print(rows, as_json, table)
    except KeyboardInterrupt:
        return


def _say_outage(error: AuditDatabaseError | None) -> None:
    if error is None:
        note("The state database can be read again.")
    else:
        note(f"Could not read the state database: {error} Rows follow when it is back.")


def _nothing_found(source: Source, config_file: Path | None) -> str:
    if not isinstance(source, Path):
        return "No matching audit rows in PostgreSQL."
    with report_config_errors():
        looked = where_looked(source, read_settings(), config_file)
    return f"No matching audit rows in {source}.{looked}"


def _source(option: Path | None, config_file: Path | None) -> Source:
    with report_config_errors():
        settings = read_settings()
        folder = audited_folder(option, settings)
        source = audit_of(folder, settings, config_file)
    if isinstance(source, Path) and not folder.is_dir():
        raise ConfigCommandError(
            f"State folder {folder} does not exist. Start the gateway once, or pass its folder with --state-dir."
        )
    return source


def _print(rows: Iterable[Row], as_json: bool, table: Table) -> int:
    """Write the rows while they are read, and return their number."""
    try:
        return _print_json(rows) if as_json else _print_table(rows, table)
    except BrokenPipeError:  # `| head` has what it wants: end as a program does that handles no signal
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the last flush would fail, too
        raise SystemExit(141) from None  # 128 + SIGPIPE


def _print_json(rows: Iterable[Row]) -> int:
    out, count = sys.stdout.buffer, 0
    for block in in_blocks(rows):
        out.write(json_lines(block))
        out.flush()
        count += len(block)
    return count


def _print_table(rows: Iterable[Row], table: Table) -> int:
    """Flushed once: a flush after each line would take longer than reading the rows."""
    out, count = sys.stdout, 0
    for line in table.lines(rows):
        out.write(f"{line}\n")
        count += 1
    out.flush()
    return count
