"""`pointsman server`: inspect the servers behind the gateway."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pointsman.config.paths import state_folder
from pointsman.config.settings import read_settings
from pointsman.router.cli.options import CommandError, report_config_errors, state_dir_option
from pointsman.router.downstream.stderr_log import FOLDER, last_lines, log_file


@click.group()
def server() -> None:
    """Inspect the servers behind the gateway."""


@server.command("log")
@click.argument("server_id", metavar="SERVER")
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Number of lines.")
@state_dir_option
def show_log(server_id: str, lines: int, state_dir: Path | None) -> None:
    """Print the last lines that SERVER wrote to stderr. The gateway keeps 64 KiB."""
    with report_config_errors():
        folder = state_folder(state_dir, read_settings(), os.environ)
    try:
        written = log_file(folder, server_id).read_bytes()
    except OSError:
        known = sorted(path.stem for path in (folder / FOLDER).glob("*.log"))
        others = f" Logs exist for: {', '.join(known)}." if known else ""
        raise CommandError(
            f"No log for `{server_id}`: it wrote nothing to stderr, or there is no such server.{others}"
        ) from None
    for line in last_lines(written, lines):
        click.echo(line)
