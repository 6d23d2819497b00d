"""`pointsman client list`: the known clients, and which of them have an entry that leads to this gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pointsman.config.errors import ConfigError
from pointsman.config.paths import NoHomeError
from pointsman.core.escape import escaped
from pointsman.router.cli.common.options import (
    CommandError,
    edited_config_option,
    json_option,
    note,
    state_dir_option,
)
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.cli.setup.client import client, find_gateway, name_option, scope_option
from pointsman.router.clients.client_file import ClientFileError
from pointsman.router.clients.dialects import DIALECTS, Dialect, project_file, user_file
from pointsman.router.clients.found_servers import count_servers, of_client
from pointsman.router.clients.setup import look
from pointsman.router.doctor.client_file import other_port


@client.command("list")
@scope_option
@name_option
@edited_config_option
@state_dir_option
@json_option
def list_(scope: str, name: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Show the known clients, their files, and which of them have an entry for this gateway."""
    try:
        url = find_gateway(config_file, state_dir).url
    except (ConfigError, NoHomeError, CommandError):
        url = None  # the list is right without it
    rows = [row for dialect in DIALECTS.values() if (row := _row(dialect, scope, name, url)) is not None]
    if as_json:
        print_json(rows)
        return
    width = max(len(row["client"]) for row in rows)
    for row in rows:
        others = f", {row['others']} other server{'s' if row['others'] != 1 else ''}" if row["others"] else ""
        echo(f"{row['client']:{width}}  {row['state'] + others:30}  {_short(row['file'])}")
        if "problem" in row:
            echo(f"{'':{width}}  | {escaped(row['problem'])}")
    note("\nConnect one with `pointsman client add NAME`. `pointsman import` takes over the servers of all.")


def _short(path: str) -> str:
    home = os.environ.get("HOME", "")
    return f"~{path.removeprefix(home)}" if home and path.startswith(f"{home}/") else path


def _row(dialect: Dialect, scope: str, name: str, url: str | None) -> dict[str, Any] | None:
    path = user_file(dialect, os.environ) if scope == "user" else project_file(dialect, Path.cwd())
    if path is None:
        return None
    row: dict[str, Any] = {"client": dialect.name, "title": dialect.title, "file": str(path), "others": 0}
    try:
        setup = look(dialect, path, name)
    except ClientFileError as error:
        return {**row, "state": "unreadable", "problem": str(error)}
    if setup.contents.text is None:
        return {**row, "state": "no file"}
    findings = of_client(dialect, os.environ, Path.cwd() if scope == "project" else None)
    findings.servers = [found for found in findings.servers if found.name != name]
    row["others"] = count_servers(findings, ())
    problem = other_port(setup.entry, url) if setup.entry is not None and url is not None else ""
    if problem:
        step = f"`pointsman client add {dialect.name}` writes it anew"
        return {**row, "state": "other address", "problem": f"{problem} {step}."}
    return {**row, "state": "set up" if setup.entry is not None else "not set up"}
