"""`pointsman server`: add, inspect, restart and remove the servers behind the gateway."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pointsman.core.escape import escaped
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    edited_config_option,
    json_option,
    note,
    state_dir_option,
    unasked_option,
)
from pointsman.router.cli.common.output import echo, paint, print_json, table
from pointsman.router.cli.common.owner import (
    ask_gateway,
    ask_if_running,
    complete,
    owned_folder,
    paint_state,
    plural,
    progress,
)
from pointsman.router.cli.common.replicas import here_option, tell_of_others, well_at_others
from pointsman.router.owner.client import NoGatewayError, OperationError, ask

if TYPE_CHECKING:
    from pointsman.router.cli.common.edited import Edited

TRIAL_S = 120.0
RESERVED = "pointsman"  # an id that no server has; its log is that of the gateway
_URL = ("http://", "https://")


def _as_id(name: str) -> str:
    """The id of a server whose entry has a name that is none, such as `My Notes`."""
    if re.fullmatch(r"(?!.*__)[A-Za-z0-9_-]+", name):
        return name
    from pointsman.config.pasted import mended_id

    return mended_id(name) or name


server_argument = click.argument(
    "server_id",
    metavar="SERVER",
    shell_complete=complete("servers"),
    callback=lambda _context, _parameter, name: _as_id(name),
)


@click.group()
def server() -> None:
    """Add, inspect, restart and remove the servers behind the gateway."""


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


@server.command(cls=CommandLast)
@click.argument("name")
@click.argument("command", metavar="COMMAND [ARGS]... | URL", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Environment variable. Repeatable.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="HTTP header. Repeatable.")
@click.option("--transport", type=click.Choice(["http", "sse"]), help="Of a URL. Default: http.")
@click.option("--cwd", help="Working directory of the command.")
@click.option("--project", "projects", multiple=True, help="Only for callers of this project. Repeatable.")
@click.option("--title", help="Display name. Default: NAME.")
@edited_config_option
@state_dir_option
@json_option
def add(
    name: str,
    command: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    transport: str | None,
    cwd: str | None,
    projects: tuple[str, ...],
    title: str | None,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Add the server NAME: a command with its arguments, or a URL.

    Options stand before the command; everything from the command on belongs to it.

    \b
    pointsman server add time uvx mcp-server-time
    pointsman server add notes --env 'NOTES_KEY=${NOTES_KEY}' npx -y notes-server
    pointsman server add tracker --header 'Authorization: Bearer ${TRACKER_TOKEN}' https://tracker.example/mcp
    """
    from pointsman.config.edits import add_server, variables_not_set
    from pointsman.router.cli.common.added_server import check_command, refuse_own_gateway
    from pointsman.router.cli.common.edited import Edited, environ, report_edit_errors, require_projects

    server_id = _as_id(name)
    given: dict[str, Any] = {
        "name": title or (name if name != server_id else None),
        **_target(command),
        "transport": transport,
        "cwd": cwd,
        "env": _pairs(variables, "=", "--env"),
        "headers": _pairs(headers, ":", "--header"),
        "projects": list(projects),
    }
    entry = {key: value for key, value in given.items() if value}
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
    _tell(edited, f"Added server `{server_id}` to", server_id, as_json)


@server.command(name="list")
@edited_config_option
@state_dir_option
@json_option
def list_servers(config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """List all servers: state, tools, program or host, and the reason if one does not run."""
    answer = ask_if_running(state_dir, "servers") if config_file is None else None
    running = answer is not None
    listed = answer["servers"] if answer is not None else _configured(config_file, state_dir)
    if as_json:
        print_json({"gateway": running, "servers": listed})
        return
    rows = [("SERVER", "STATE", "TOOLS", "KIND", "TARGET", "")]
    for one in listed:
        state = one["state"] if one["enabled"] else "disabled"
        count = "-" if one["tools"] is None else str(one["tools"])
        reason = one["reason"] if one["enabled"] else ""
        rows.append((one["id"], paint_state(state), count, one["kind"], one["target"], reason))
    if listed:
        for line in table(rows):
            echo(line)
    else:
        note("No servers yet. Add one with `pointsman server add NAME COMMAND`.")
    if config_file is not None:
        note(
            f"Only the configuration {config_file} is shown; without --config, the servers of the running gateway are."
        )
    elif not running:
        note("No gateway runs now, so only the configuration is shown. `pointsman serve` starts one.")


@server.command()
@server_argument
@edited_config_option
@state_dir_option
@json_option
def test(server_id: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Try SERVER now: start it if it does not run, and list its tools.

    Without a running gateway, the server is started for the trial only.
    """
    with progress(f"Trying `{server_id}` ..."):
        found = ask_if_running(state_dir, "test_server", timeout_s=TRIAL_S, server=server_id)
    if found is None:
        found = _try_alone(server_id, config_file, state_dir)
    _show(found, as_json)
    if not found["enabled"]:
        raise CommandError(f"It was not tried. Enable it with `pointsman server enable {server_id}`.")


@server.command("log")
@server_argument
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Number of lines.")
@state_dir_option
@json_option
def show_log(server_id: str, lines: int, state_dir: Path | None, as_json: bool) -> None:
    """Print the last lines that SERVER wrote to stderr. The gateway keeps 64 KiB."""
    from pointsman.router.downstream.stderr_log import FOLDER

    folder = owned_folder(state_dir)
    written = _log_lines(folder, server_id, lines)
    if written is None:
        if server_id == RESERVED:
            raise CommandError("That is the gateway itself: `pointsman log` prints its log.")
        known = sorted(path.stem for path in (folder / FOLDER).glob("*.log") if path.stem != RESERVED)
        others = f" Logs exist for: {', '.join(known)}." if known else ""
        reason, failure = _why_no_log(folder, server_id)
        raise failure(f"No log for `{server_id}`: {reason}.{others}")
    if as_json:
        print_json({"server": server_id, "lines": written})
        return
    for line in written:
        echo(escaped(line))


@server.command()
@server_argument
@here_option
@state_dir_option
@json_option
def restart(server_id: str, here: bool, state_dir: Path | None, as_json: bool) -> None:
    """Open a new connection to SERVER, then close the old one. Calls under way may finish.

    With several replicas: first at the one that is asked, then at all others.
    """
    with progress(f"Restarting `{server_id}` ..."):
        found = ask_gateway(state_dir, "restart_server", timeout_s=TRIAL_S, server=server_id, here=here)
    if not as_json:
        tell_of_others(found, "running")
    _show(found, as_json)
    if not well_at_others(found, "running"):
        sys.exit(1)


@server.command()
@server_argument
@here_option
@state_dir_option
@json_option
def stop(server_id: str, here: bool, state_dir: Path | None, as_json: bool) -> None:
    """Stop SERVER until `server restart`, or until its entry changes. The configuration stays as it is."""
    found = ask_gateway(state_dir, "stop_server", timeout_s=TRIAL_S, server=server_id, here=here)
    if as_json:
        print_json(found)
    else:
        echo(f"Server `{server_id}` is stopped. `pointsman server restart {server_id}` starts it again.")
        tell_of_others(found, "stopped")
    if not well_at_others(found, "stopped"):
        sys.exit(1)


def _toggle(enabled: bool) -> click.Command:
    verb = "Enable" if enabled else "Disable"

    @server_argument
    @edited_config_option
    @state_dir_option
    @json_option
    def toggle(server_id: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
        from pointsman.config.edits import enable_server
        from pointsman.router.cli.common.edited import Edited, environ, report_edit_errors

        edited = Edited.find(config_file, state_dir)
        with report_edit_errors(edited.path, "server"):
            change = enable_server(edited.path, server_id, enabled, environ())
        edited.apply(change)
        _tell(edited, f"{verb}d server `{server_id}` in", server_id, as_json)

    return click.command(verb.lower(), help=f"{verb} SERVER in the configuration.")(toggle)


server.add_command(_toggle(enabled=True))
server.add_command(_toggle(enabled=False))


@server.command()
@server_argument
@unasked_option
@edited_config_option
@state_dir_option
@json_option
def remove(server_id: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Remove SERVER from the configuration, with the comments inside its entry.

    Refused while a token names the server.
    """
    from pointsman.config.edits import remove_server
    from pointsman.router.cli.common.edited import Edited, environ, report_edit_errors

    edited = Edited.find(config_file, state_dir)
    with report_edit_errors(edited.path, "server"):
        change = remove_server(edited.path, server_id, environ())
    edited.apply(change)
    if as_json:
        print_json({"configuration": str(edited.path), "gateway": edited.running, "server": None})
        return
    echo(f"Removed server `{server_id}` from {edited.path}.")
    edited.note_pending()


# ------------------------------------------------------------------ helpers


def _target(command: Sequence[str]) -> dict[str, Any]:
    first, *rest = command
    if not first.startswith(_URL):
        return {"command": first, "args": rest}
    if rest:
        raise ConfigCommandError(f"A URL takes no arguments, but `{rest[0]}` follows it. Write options before the URL.")
    return {"url": first}


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


def _tell(edited: Edited, done: str, server_id: str, as_json: bool) -> None:
    done = f"{done} {edited.path}"
    found = edited.server(server_id, done)
    if as_json:
        print_json({"configuration": str(edited.path), "gateway": edited.running, "server": found})
    else:
        echo(f"{done}.")
        edited.note_pending()
    if found is not None:
        _show(found, as_json, printed=as_json)


def _show(found: dict[str, Any], as_json: bool, *, printed: bool = False) -> None:
    """Say what became of a server; exit with 1 if it should run and does not."""
    well = not found["enabled"] or (found["state"] == "running" and found["tools"] is not None)
    if as_json:
        if not printed:
            print_json(found)
    elif not found["enabled"]:
        echo(f"Server `{found['id']}` is disabled.")
    elif well:
        version = f", protocol {found['protocol']}" if found["protocol"] else ""
        echo(f"Server `{found['id']}` is {paint_state('running')} with {plural(found['tools'] or 0, 'tool')}{version}.")
        if held := found.get("held", 0):
            wait = "waits" if held == 1 else "wait"
            note(f"{plural(held, 'definition')} {wait} for approval: `pointsman pin diff {found['id']}` shows what.")
        _show_flags(found.get("flags", ()))
    else:
        _show_failure(found)
    if not well:
        sys.exit(1)


def _show_flags(flags: Sequence[Mapping[str, str]]) -> None:
    if not flags:
        return
    note("Read these definitions before you trust the server:")
    for flag in flags:
        echo(f"  | {escaped(flag['text'])}", err=True)


def _show_failure(found: dict[str, Any]) -> None:
    server_id = found["id"]
    reason = found["reason"] or "no reason is known"
    word = "does not run" if found["state"] == "failed" else f"is {found['state']}"
    echo(f"Server `{server_id}` {paint(word, 'red')}: {escaped(reason.rstrip('.'))}.", err=True)
    from pointsman.router.owner.last_words import telling_lines

    words = telling_lines(found["log"]) if "log" in found else found.get("lastWords", ())
    for line in words:
        echo(f"  | {escaped(line)}", err=True)
    trial = "log" in found
    names = found.get("emptyVariables", ())
    if names:
        from pointsman.router.owner.description import empty_variables

        note(empty_variables(names, trial=trial))
    if trial:
        note(f"Change its entry in the configuration, then try again with `pointsman server test {server_id}`.")
    elif found["state"] == "not answering":
        from pointsman.router.owner.description import silent_step

        note(f"It hangs, or is busy with a call. {silent_step(found)}.")
    elif found["state"] == "starting":
        note("It is still starting; `pointsman server list` shows when it runs.")
    elif words:
        note(f"The gateway tries it again. `pointsman server log {server_id}` shows more of what it wrote.")
    elif found["kind"] in ("http", "sse") and "`headers`" not in reason:
        note("The gateway tries it again. Check its URL and headers in the configuration.")
    else:
        note("The gateway tries it again.")


def _why_no_log(folder: Path, server_id: str) -> tuple[str, type[CommandError]]:
    from pointsman.router.owner.socket_file import REPLICAS

    try:
        known = ask(folder, "names")["servers"]
    except (NoGatewayError, OperationError):
        return "it wrote nothing to stderr, or there is no such server", CommandError
    if server_id in known:
        if (folder / REPLICAS).is_dir():
            return f"each replica has its own; name one with --state-dir {folder / REPLICAS / '1'}", CommandError
        return "it has written nothing to stderr", CommandError
    return "there is no such server", ConfigCommandError


def _log_lines(folder: Path, server_id: str, lines: int) -> list[str] | None:
    from pointsman.config.secrets import mask_secrets
    from pointsman.router.downstream.stderr_log import last_lines, log_file

    if server_id == RESERVED:
        return None
    try:
        written = last_lines(log_file(folder, server_id).read_bytes(), lines)
    except OSError:
        return None
    return [mask_secrets(line) for line in written]  # an earlier version has not masked what it wrote


def _configured(config_file: Path | None, state_dir: Path | None) -> list[dict[str, Any]]:
    from pointsman.router.cli.common.edited import Edited
    from pointsman.router.cli.common.options import load_gateway_config, report_config_errors
    from pointsman.router.owner.description import kind_of, target_of

    with report_config_errors():
        config = load_gateway_config(config_file or Edited.find(None, state_dir).path)
    return [
        {
            "id": server_id,
            "kind": kind_of(one),
            "target": target_of(one),
            "enabled": one.enabled,
            "state": "not running",
            "reason": "",
            "tools": None,
            "projects": list(one.projects),
        }
        for server_id, one in config.servers.items()
    ]


def _try_alone(server_id: str, config_file: Path | None, state_dir: Path | None) -> dict[str, Any]:
    from pointsman.config.errors import closest
    from pointsman.router.cli.common.edited import Edited
    from pointsman.router.cli.common.options import load_gateway_config, report_config_errors
    from pointsman.router.cli.common.secret_environment import secret_reader
    from pointsman.router.owner.trial import try_server

    with report_config_errors():
        path = config_file or Edited.find(None, state_dir).path
        config = load_gateway_config(path, tried=server_id, secrets=secret_reader(os.environ))
    if server_id not in config.servers:
        near = closest(server_id, config.servers)
        hint = f" Did you mean `{near}`?" if near else " `pointsman server list` shows them."
        raise ConfigCommandError(f"There is no server `{server_id}`.{hint}")
    note("No gateway runs now, so the server is started for this trial only.")
    with progress(f"Trying `{server_id}` ..."):
        return try_server(config, server_id, path, owned_folder(state_dir))
