"""`pointsman server`: the servers behind the gateway."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pointsman.config.paths import state_folder
from pointsman.config.settings import read_settings
from pointsman.router.cli.options import CommandError, clear_errors
from pointsman.router.downstream.stderr_log import FOLDER, last_lines, log_file


@click.group()
def server() -> None:
    """The servers behind the gateway."""


@server.command("log")
@click.argument("server_id", metavar="SERVER")
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="How many lines.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="The gateway's state folder.")
def show_log(server_id: str, lines: int, state_dir: Path | None) -> None:
    """Show what a server wrote to its stderr: the last 64 KiB are kept."""
    with clear_errors():
        folder = state_folder(state_dir, read_settings(), os.environ)
    try:
        written = log_file(folder, server_id).read_bytes()
    except OSError:
        known = sorted(path.stem for path in (folder / FOLDER).glob("*.log"))
        others = f" There are logs of: {', '.join(known)}." if known else ""
        raise CommandError(
            f"No log of `{server_id}`: it wrote nothing to its stderr, or is no server.{others}"
        ) from None
    for line in last_lines(written, lines):
        click.echo(line)
