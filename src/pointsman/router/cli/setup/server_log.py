"""`pointsman server log`: print what a server wrote to stderr, whichever replica on the state folder runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pointsman.core.escape import escaped
from pointsman.router.cli.common.options import CommandError, ConfigCommandError, json_option, state_dir_option
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.cli.common.owner import owned_folder
from pointsman.router.cli.common.server_argument import server_argument
from pointsman.router.owner.client import NoGatewayError, OperationError, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

RESERVED = "pointsman"  # an id that no server has; its log is that of the gateway


@click.command("log")
@server_argument
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Number of lines.")
@state_dir_option
@json_option
def show_log(server_id: str, lines: int, state_dir: Path | None, as_json: bool) -> None:
    """Print the last lines that SERVER wrote to stderr. The gateway keeps 64 KiB.

    Where each replica runs a process of its own, the lines of each; --state-dir STATE/replicas/2 names one.
    """
    if server_id == RESERVED:
        raise CommandError("That is the gateway itself: `pointsman log` prints its log.")
    folder = owned_folder(state_dir)
    found = {place: text for place in _places(folder) if (text := _log_lines(place, server_id, lines))}
    if len(found) > 1:
        found = _of_present(found, folder, server_id)
    if not found:
        raise _no_log(folder, server_id)
    if as_json:
        answer = {"server": server_id, "lines": [line for text in found.values() for line in text]}
        several = [{"replica": place.name, "lines": text} for place, text in found.items()]
        print_json(answer | ({"replicas": several} if len(found) > 1 else {}))
        return
    for place, text in found.items():
        if len(found) > 1:
            echo(_heading(place))
        for line in text:
            echo(escaped(line))


def _places(folder: Path) -> list[Path]:
    """The folders with logs: of the gateway or of all replicas together, then of each replica.

    For the folder of one replica: it, then that of all, where the log of a server is that one replica runs for all.
    """
    from pointsman.router.cli.common.log_folders import numbered_folders, shared_folder

    if (shared := shared_folder(folder)) is not None:
        return [folder, shared]
    return [folder, *numbered_folders(folder)]


def _heading(place: Path) -> str:
    from pointsman.router.cli.common.log_folders import LogFolder, kind_of_replicas, shared_folder

    if (shared := shared_folder(place)) is None:
        return LogFolder(place).heading
    return LogFolder(place, kind_of_replicas(shared), int(place.name)).heading


def _of_present(found: Mapping[Path, list[str]], folder: Path, server_id: str) -> dict[Path, list[str]]:
    """Leave out logs of earlier runs: of replicas that have ended, and of a `placement` that is no longer so."""
    from pointsman.router.cli.common.log_folders import shared_folder
    from pointsman.router.serving.state_folder import replica_folders

    shared = shared_folder(folder) or folder
    try:
        placed = ask(folder, "server_place", server=server_id)["placed"]
    except (NoGatewayError, OperationError):
        return dict(found)  # the last words of all that ran
    living = [shared] if placed else [folder] if folder != shared else (replica_folders(shared) or [shared])
    return {place: text for place, text in found.items() if place in living} or dict(found)


def _no_log(folder: Path, server_id: str) -> CommandError:
    from pointsman.router.cli.common.log_folders import shared_folder
    from pointsman.router.downstream.stderr_log import FOLDER

    known = sorted({path.stem for place in _places(folder) for path in (place / FOLDER).glob("*.log")} - {RESERVED})
    others = f" Logs exist for: {', '.join(known)}." if known else ""
    reason, kind = "it wrote nothing to stderr, or there is no such server", CommandError
    try:
        configured = server_id in ask(folder, "names")["servers"]
    except (NoGatewayError, OperationError):
        pass
    else:
        reason = "it has written nothing to stderr" if configured else "there is no such server"
        kind = CommandError if configured else ConfigCommandError
    if kind is CommandError and (shared := shared_folder(folder)) is not None:
        reason += f" at this replica; --state-dir {shared} looks at all of them"
    return kind(f"No log for `{server_id}`: {reason}.{others}")


def _log_lines(folder: Path, server_id: str, lines: int) -> list[str]:
    from pointsman.config.secrets import mask_secrets
    from pointsman.router.downstream.stderr_log import last_lines, log_file

    try:
        written = last_lines(log_file(folder, server_id).read_bytes(), lines)
    except OSError:
        return []
    return [mask_secrets(line) for line in written]  # an earlier version has not masked what it wrote
