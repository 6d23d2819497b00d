"""The argument SERVER of commands."""

from __future__ import annotations

import re

import click

from pointsman.router.cli.common.owner import complete


def as_id(name: str) -> str:
    """The id of a server whose entry has a name that is none, such as `My Notes`."""
    if re.fullmatch(r"(?!.*__)[A-Za-z0-9_-]+", name):
        return name
    from pointsman.config.pasted import mended_id

    return mended_id(name) or name


server_argument = click.argument(
    "server_id",
    metavar="SERVER",
    shell_complete=complete("servers"),
    callback=lambda _context, _parameter, name: as_id(name),
)
