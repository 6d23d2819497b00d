"""`pointsman server`: add, inspect, restart and remove the servers behind the gateway."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

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
from pointsman.router.cli.common.output import echo, print_json, table
from pointsman.router.cli.common.owner import (
    ask_gateway,
    ask_if_running,
    owned_folder,
    paint_state,
    progress,
)
from pointsman.router.cli.common.replicas import (
    here_option,
    tell_differences,
    tell_of_others,
    tell_where,
    well_at_others,
)
from pointsman.router.cli.common.server_argument import server_argument
from pointsman.router.cli.setup.server_add import add
from pointsman.router.cli.setup.server_log import show_log
from pointsman.router.cli.setup.server_login import credentials, login, logout
from pointsman.router.cli.setup.server_report import show, tell
from pointsman.router.owner.replica_names import at_start, replica_name

TRIAL_S = 120.0


@click.group()
def server() -> None:
    """Add, inspect, restart and remove the servers behind the gateway."""


server.add_command(add)
server.add_command(show_log)


@server.command(name="list")
@edited_config_option
@state_dir_option
@json_option
def list_servers(config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """List all servers: state, tools, program or host, and the reason if one does not run.

    With several replicas: as the one that is asked sees them, and below what others see differently.
    """
    answer = ask_if_running(state_dir, "servers") if config_file is None else None
    running = answer is not None
    listed = answer["servers"] if answer is not None else _configured(config_file, state_dir)
    if as_json:
        print_json({"gateway": running, "servers": listed})
        return
    rows = [("SERVER", "STATE", "TOOLS", "KIND", "TARGET", "")]
    kind = "worker" if answer is not None and "worker" in answer else "replica"
    for one in listed:
        state = one["state"] if one["enabled"] else "disabled"
        count = "-" if one["tools"] is None else str(one["tools"])
        reason = one["reason"] if one["enabled"] else ""
        if not reason and state == "running" and one.get("runsAt"):
            reason = f"run by {kind} {one['runsAt']} for all"
        rows.append((one["id"], paint_state(state), count, one["kind"], one["target"], reason))
    if listed:
        for line in table(rows):
            echo(line)
        tell_differences(listed)
    else:
        note("No servers yet. Add one with `pointsman server add NAME COMMAND`.")
    for one in answer.get("silent", ()) if answer is not None else ():
        note(f"{at_start(replica_name(one))} did not say how its servers are: {escaped(one['problem'])}")
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
    if problem := found.get("configuration"):
        note(f"It was tried as the gateway runs it now. {problem}")
    show(found, as_json)
    if not found["enabled"]:
        raise CommandError(f"It was not tried. Enable it with `pointsman server enable {server_id}`.")


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
        tell_where(found)
        tell_of_others(found, "running")
    show(found, as_json)
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
        tell(edited, f"{verb}d server `{server_id}` in", server_id, as_json)

    return click.command(verb.lower(), help=f"{verb} SERVER in the configuration.")(toggle)


server.add_command(_toggle(enabled=True))
server.add_command(_toggle(enabled=False))
server.add_command(login)
server.add_command(logout)
server.add_command(credentials)


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
    if config.servers[server_id].oauth is not None:
        raise CommandError(f"`{server_id}` has `oauth`: only a running gateway signs in. `pointsman serve` starts one.")
    note("No gateway runs now, so the server is started for this trial only.")
    with progress(f"Trying `{server_id}` ..."):
        return try_server(config, server_id, path, owned_folder(state_dir))
