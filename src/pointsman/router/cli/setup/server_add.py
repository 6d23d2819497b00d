"""`pointsman server add`: a server by its command or URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pointsman.router.cli.common.options import (
    ConfigCommandError,
    edited_config_option,
    json_option,
    note,
    state_dir_option,
)
from pointsman.router.cli.common.server_argument import as_id
from pointsman.router.cli.setup.server_report import tell

if TYPE_CHECKING:
    from pointsman.router.cli.common.edited import Edited

_URL = ("http://", "https://")
_PINS = ("first-use", "schema", "locked", "off")
_CONFIRM_WORDS = ("never", "destructive", "writes")


class CommandLast(click.Command):
    """Takes options before or after NAME and after a URL, and leaves everything from a command on as it is."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-"):
            name, *rest = args
            count = self._count_options(rest)
            command = rest[count + 1 :] if rest[count : count + 1] == ["--"] else rest[count:]
            options = rest[:count]
            if command and command[0].startswith(_URL):
                after = 1 + self._count_options(command[1:])
                options, command = [*options, *command[1:after]], [command[0], *command[after:]]
            args = [*options, "--", name, *command]
        return super().parse_args(ctx, args)

    def _count_options(self, args: Sequence[str]) -> int:
        """Return how many words at the begin are options and their values."""
        with_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        }
        count = 0
        while count < len(args) and args[count].startswith("-") and args[count] != "--":
            count += 2 if args[count] in with_value else 1
        return count


@click.command(cls=CommandLast)
@click.argument("name")
@click.argument("command", metavar="COMMAND [ARGS]... | URL", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Environment variable. Repeatable.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="HTTP header. Repeatable.")
@click.option("--oauth", is_flag=True, help="Of a URL: sign in with OAuth, by `pointsman server login NAME`.")
@click.option("--transport", type=click.Choice(["http", "sse"]), help="Of a URL. Default: http.")
@click.option("--cwd", help="Working directory of the command.")
@click.option("--project", "projects", multiple=True, help="Only for callers of this project. Repeatable.")
@click.option("--title", help="Display name. Default: NAME.")
@click.option("--pin", type=click.Choice(_PINS), help="Which definitions wait for approval. Default: first-use.")
@click.option(
    "--confirm",
    multiple=True,
    metavar="destructive|writes|PATTERN",
    help="Calls that need a person's yes: a word, or patterns such as 'NAME:delete_*'. Repeatable.",
)
@click.option("--trust-annotations", is_flag=True, help="Believe what the server says its tools do.")
@click.option("--sandbox", is_flag=True, help="Confine the command to its own files, without a network.")
@click.option("--sandbox-read", "reads", multiple=True, metavar="PATH", help="It may read this, too. Repeatable.")
@click.option("--sandbox-write", "writes", multiple=True, metavar="PATH", help="It may change this. Repeatable.")
@click.option("--sandbox-network", "network", is_flag=True, help="It may use the network.")
@edited_config_option
@state_dir_option
@json_option
def add(
    name: str,
    command: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    oauth: bool,
    transport: str | None,
    cwd: str | None,
    projects: tuple[str, ...],
    title: str | None,
    pin: str | None,
    confirm: tuple[str, ...],
    trust_annotations: bool,
    sandbox: bool,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    network: bool,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Add the server NAME: a command with its arguments, or a URL.

    Options stand before the command; everything from the command on belongs to it.

    \b
    pointsman server add time uvx mcp-server-time
    pointsman server add notes --env 'NOTES_KEY=${NOTES_KEY}' npx -y notes-server
    pointsman server add board --oauth https://board.example/mcp
    pointsman server add tracker --header 'Authorization: Bearer ${TRACKER_TOKEN}' https://tracker.example/mcp
    pointsman server add files --confirm destructive --sandbox-write ~/notes mcp-server-files ~/notes
    """
    from pointsman.config.edits import add_server, variables_not_set
    from pointsman.router.cli.common.added_server import check_command, refuse_own_gateway
    from pointsman.router.cli.common.edited import Edited, environ, report_edit_errors, require_projects

    server_id = as_id(name)
    given: dict[str, Any] = {
        "name": title or (name if name != server_id else None),
        **_target(command),
        "transport": transport,
        "cwd": cwd,
        "env": _pairs(variables, "=", "--env"),
        "headers": _pairs(headers, ":", "--header"),
        "oauth": "auto" if oauth else None,
        "projects": list(projects),
        "pin": pin,
        "confirm": _confirm(confirm),
        "trust_annotations": trust_annotations,
    }
    entry = {key: value for key, value in given.items() if value}
    if sandbox or reads or writes or network:
        allowed = {"read": _paths(reads), "write": _paths(writes), "network": network}
        entry["sandbox"] = {key: value for key, value in allowed.items() if value}
    options = click.get_current_context().command.params
    check_command(command, {name for option in options if isinstance(option, click.Option) for name in option.opts})
    edited = Edited.find(config_file, state_dir)
    refuse_own_gateway(entry, edited)
    with report_edit_errors(edited.path, "server"):
        require_projects(edited.path, projects)
        change = add_server(edited.path, server_id, entry, environ())
    _advise_references(given)
    _name_variables(edited, variables_not_set("servers", server_id, entry, environ()))
    edited.apply(change)
    tell(edited, f"Added server `{server_id}` to", server_id, as_json, signs_in=oauth)


def _target(command: Sequence[str]) -> dict[str, Any]:
    first, *rest = command
    if not first.startswith(_URL):
        return {"command": first, "args": rest}
    if rest:
        raise ConfigCommandError(f"A URL takes no arguments, but `{rest[0]}` follows it. Write options before the URL.")
    return {"url": first}


def _confirm(given: Sequence[str]) -> str | list[str] | None:
    """One word, or a list of patterns. The configuration's own check says what is wrong with a pattern."""
    if not given:
        return None
    if not any(one in _CONFIRM_WORDS for one in given):
        return list(given)
    if len(given) > 1:
        raise ConfigCommandError(f"--confirm is one of {', '.join(_CONFIRM_WORDS)}, or one or more patterns.")
    return given[0]


def _paths(given: Sequence[str]) -> list[str]:
    """As seen from here: in the file, a relative path would begin at the file's folder."""
    return [path if path.startswith(("~", "$")) else os.path.abspath(path) for path in given]


def _pairs(given: Sequence[str], separator: str, option: str) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, found, value = each.partition(separator)
        if not found or not name.strip():
            raise ConfigCommandError(f"{option} needs NAME{separator}VALUE, but got `{name[:40]}`.")
        pairs[name.strip()] = value.strip() if separator == ":" else value
    return pairs


def _advise_references(given: dict[str, Any]) -> None:
    """Point at `${NAME}` where a value that looks like a secret was written into the file."""
    from pointsman.config.secrets import holds_secret

    arguments = {f"argument {number}": text for number, text in enumerate(given.get("args", ()), 1)}
    for name, value in {**given["env"], **given["headers"], **arguments}.items():
        if holds_secret(value):
            note(
                f"The value of {name} is in the file as plain text. With `${{NAME}}` in its place the gateway reads it "
                "from its environment, with `${file:PATH}` from a file."
            )


def _name_variables(edited: Edited, names: Sequence[str]) -> None:
    """Say which variables this shell lacks. Only the gateway's own environment matters, and it checks that next."""
    if not names:
        return
    which, verb = ", ".join(names), "is" if len(names) == 1 else "are"
    if edited.running:
        note(f"{which} {verb} not set in this shell. If the gateway lacks it, too, restart the gateway with it.")
    else:
        note(f"{which} {verb} not set in this shell. Set it where the gateway is started: without it, none starts.")
