"""`pointsman project`: list, set and remove the projects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pointsman.config.edits import add_project, remove_project, set_project
from pointsman.config.errors import ConfigError
from pointsman.config.model import ANY, UNASSIGNED, GatewayConfig
from pointsman.router.cli.common.edited import (
    Edited,
    environ,
    project_names,
    report_edit_errors,
    require_projects,
)
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
from pointsman.router.cli.common.output import echo, print_json, table
from pointsman.router.cli.common.owner import complete
from pointsman.router.owner.description import OFF, describe_project


@click.group()
def project() -> None:
    """List and remove the projects, and set how their tools are found."""


@project.command(name="list")
@edited_config_option
@state_dir_option
@json_option
def list_projects(config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """List the projects with their servers. The one without a name is for callers that name no project."""
    edited = Edited.find(config_file, state_dir)
    with report_config_errors():
        config = load_gateway_config(edited.path)
    listed = [describe_project(config, UNASSIGNED)]
    listed += [describe_project(config, project_id) for project_id in config.projects]
    if as_json:
        print_json({"configuration": str(edited.path), "projects": listed})
        return
    rows = [("PROJECT", "OPTIMIZATION", "EXPOSURE", "SERVERS", "TOOLS")]
    rows += [
        (
            *(one["id"] or '""', one["optimization"], one["exposure"]),
            *(", ".join(one["servers"]) or "none", _tools(one["tools"])),
        )
        for one in listed
    ]
    for line in table(rows):
        echo(line)


@project.command(name="set")
@click.argument("name", shell_complete=complete("projects"))
@click.option("--optimization", type=click.Choice(["bm25", "cloud", OFF]), help="How tool_discovery ranks tools.")
@click.option("--exposure", type=click.Choice(["meta", "flat"]), help="Two tools that find the others, or all by name.")
@click.option(
    "--tools",
    multiple=True,
    metavar="PATTERN",
    help='Tools of the project, such as "github:get_*", or "!github:*" for all others; "*" for all. Repeatable.',
)
@click.option("--create", is_flag=True, help="Create the project if there is none of this name.")
@edited_config_option
@state_dir_option
@json_option
def set_(
    name: str,
    optimization: str | None,
    exposure: str | None,
    tools: tuple[str, ...],
    create: bool,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Set keys of the project NAME; \"\" stands for callers that name no project."""
    given = {"optimization": optimization, "exposure": exposure}
    values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if optimization == OFF:
        values["optimization"] = None
    if tools:
        values["tools"] = None if tools == (ANY,) else list(tools)
    edited = Edited.find(config_file, state_dir)
    before, _ = _loaded(edited.path)
    with report_edit_errors(edited.path, "project"):
        if not create:
            require_projects(edited.path, [name])
        if not values and not create:
            raise ConfigCommandError("Nothing to set. Give --optimization, --exposure or --tools.")
        if create and name and name not in project_names(edited.path):
            change = add_project(edited.path, name, values, environ())
        else:
            change = set_project(edited.path, name, values, environ())
    edited.apply(change)
    config, problems = _loaded(edited.path)
    if config is None:
        raise CommandError(f"{edited.path} was changed. It has other problems:", *problems)
    row = describe_project(config, name)
    if as_json:
        print_json({"configuration": str(edited.path), "gateway": edited.running, "project": row})
        return
    shown = f"Project `{name}`" if name else "Callers without a project"
    tools_shown = f", tools {_tools(row['tools'])}" if row["tools"] is not None else ""
    echo(f"{shown}: optimization {row['optimization']}, exposure {row['exposure']}{tools_shown} (in {edited.path}).")
    edited.note_pending()
    if before is not None and edited.running and (reconnected := _reconnected(before, config)):
        note(f"Reconnected, because `exposure` decides whether a server may offer apps: {', '.join(reconnected)}.")


@project.command()
@click.argument("name", shell_complete=complete("projects"))
@edited_config_option
@state_dir_option
@json_option
def remove(name: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Remove the project NAME. Servers and tokens that name it must be taken out of it first."""
    edited = Edited.find(config_file, state_dir)
    with report_edit_errors(edited.path, "project"):
        change = remove_project(edited.path, name, environ())
    edited.apply(change)
    if as_json:
        print_json({"configuration": str(edited.path), "gateway": edited.running, "removed": name})
        return
    echo(f"Project `{name}` removed from {edited.path}.")
    edited.note_pending()


def _tools(patterns: list[str] | None) -> str:
    return "all" if patterns is None else ", ".join(patterns)


def _loaded(path: Path) -> tuple[GatewayConfig | None, list[str]]:
    """The configuration, or all that is wrong with it: an edit may mend what is wrong."""
    try:
        return load_gateway_config(path), []
    except ConfigError as error:
        return None, [str(problem) for problem in error.problems]


def _reconnected(before: GatewayConfig, now: GatewayConfig) -> list[str]:
    """The servers to which the gateway declares support for apps now and did not before, or the other way round."""
    return [
        server_id
        for server_id, server in now.servers.items()
        if server.enabled and server_id in before.servers
        if now.is_flat(server) != before.is_flat(before.servers[server_id])
    ]
