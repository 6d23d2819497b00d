"""`pointsman service`: let systemd or launchd keep the gateway running for this user."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pointsman.config.errors import ConfigError
from pointsman.config.files import ReplaceError, create, rewrite
from pointsman.config.loader import read_text
from pointsman.config.paths import FILE_NAME, state_folder, user_config
from pointsman.config.settings import read_settings
from pointsman.config.yaml.document import Document
from pointsman.router.cli.common.first_start import gateway_config_file
from pointsman.router.cli.common.options import (
    CommandError,
    config_option,
    confirmed,
    json_option,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.cli.common.output import echo, paint, print_json
from pointsman.router.cli.common.service_file import (
    HARDENED,
    MARKER,
    Manager,
    Service,
    ServiceFile,
    search_path,
    service_file,
    this_manager,
)
from pointsman.router.clients.entry import own_command
from pointsman.router.downstream.stdio.environment import NETWORK
from pointsman.router.serving.state_folder import find_running

ANSWER_S = 10.0
_OWN_VARIABLES = ("POINTSMAN_HOST", "POINTSMAN_PORT", "POINTSMAN_LOG_LEVEL", "POINTSMAN_REQUEST_KEY")
_SHOWN = ("ActiveState", "SubState", "MainPID", "NRestarts", "StatusText", "Result")


@dataclass(frozen=True, slots=True)
class _Found:
    """The service of this installation: its file, and what it runs with."""

    service: Service
    manager: Manager
    file: ServiceFile
    config: Path
    config_missing: bool

    @property
    def installed(self) -> str | None:
        try:
            return self.file.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CommandError(f"{self.file.path} cannot be read: {error.strerror}.") from error

    def is_current(self, installed: str) -> bool:
        """Whether the file is as `install` would write it; PATH differs from shell to shell, and is a choice."""
        return _without_choices(installed) == _without_choices(self.file.text)


name_option = click.option(
    "--name", default="pointsman", show_default=True, help="Name of the service, for a second gateway."
)
hardened_option = click.option(
    "--hardened", is_flag=True, help="Forbid setuid programs such as sudo, snap and rootless podman (systemd only)."
)


def _file_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (json_option, state_dir_option, config_option, name_option):
        command = option(command)
    return command


@click.group()
def service() -> None:
    """Keep the gateway running, as a service of this user."""


@service.command("print")
@click.option("--manager", type=click.Choice(["systemd", "launchd"]), help="Default: the one of this system.")
@hardened_option
@_file_options
def print_(
    manager: Manager | None,
    hardened: bool,
    name: str,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Print the service's file. Changes nothing."""
    found = _find(name, config_file, state_dir, hardened, manager)
    if as_json:
        print_json({**_named(found), "content": found.file.text})
        return
    echo(found.file.text, nl=False)
    note(f"This belongs into {found.file.path}; `pointsman service install` writes it there.")


@service.command()
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and stop.")
@click.option("--replace", is_flag=True, help="Replace a file with other content; a copy of it is kept.")
@hardened_option
@_file_options
def install(
    yes: bool,
    dry_run: bool,
    replace: bool,
    hardened: bool,
    name: str,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Write the service's file; print the next commands."""
    found = _find(name, config_file, state_dir, hardened)
    before = found.installed
    result: dict[str, Any] = {**_named(found), "changed": False, "backup": None}
    if before == found.file.text:
        note(f"{found.file.path} is installed already; nothing to change.")
    else:
        _show_change(found, before)
        if before is not None and not replace:
            raise CommandError(
                f"{found.file.path} exists with other content, and was not changed. With --replace it is replaced, "
                "and a copy of it is kept."
            )
        if not dry_run and not confirmed(yes):
            return
        if not dry_run:
            backup = _write(found, before)
            result |= {"changed": True, "backup": str(backup) if backup else None}
            note(f"Wrote {found.file.path}{f'; {backup} has what was there before' if backup else ''}.\n")
    missing = _missing_variables(found)
    if as_json:
        print_json({**result, "next": [command for command, _ in found.file.start], "missingVariables": missing})
    _say_next(found, missing, "After the installation" if dry_run else "Next")


@service.command()
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@_file_options
def uninstall(yes: bool, name: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Remove the service's file. Configuration, tokens and state stay."""
    found = _find(name, config_file, state_dir)
    installed = found.installed
    if installed is None:
        raise CommandError(f"There is no {found.file.path}; nothing to remove.")
    if MARKER not in installed:
        raise CommandError(f"{found.file.path} was not written by Pointsman, and was not removed. Remove it by hand.")
    if found.file.link is not None and found.file.link.is_symlink():
        raise CommandError(
            f"The service is enabled, and was not removed. Stop and disable it with `{found.file.stop}`, "
            "then uninstall it."
        )
    note(f"Remove {found.file.path}.")
    if not confirmed(yes):
        return
    try:
        found.file.path.unlink()
    except OSError as error:
        raise CommandError(f"{found.file.path} cannot be removed: {error.strerror}.") from error
    if as_json:
        print_json({**_named(found), "changed": True})
    after = "systemctl --user daemon-reload" if found.manager == "systemd" else found.file.stop
    note(f"Removed. Run `{after}`. The configuration {found.config} and {found.service.state_dir} stay.")


@service.command()
@_file_options
def status(name: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Show whether the service is installed, enabled and running. Exits with 1 if it is not running."""
    found = _find(name, config_file, state_dir)
    installed = found.installed
    running = find_running(found.service.state_dir)
    manager = _ask_systemd(name) if found.manager == "systemd" else None
    answer = {
        **_named(found),
        "installed": installed is not None,
        "current": installed is not None and found.is_current(installed),
        "enabled": installed is not None and (found.file.link is None or found.file.link.is_symlink()),
        "state": manager,
        "gateway": {"url": running.url, "process": running.pid} if running is not None else None,
    }
    well = installed is not None and running is not None
    if manager is not None:
        well = well and manager["ActiveState"] in ("active", "reloading")
    if as_json:
        print_json(answer)
    else:
        for line in _status_lines(found, answer):
            echo(line)
    if not well:
        sys.exit(1)


# ------------------------------------------------------------------ helpers


def _find(
    name: str,
    config_file: Path | None,
    state_dir: Path | None,
    hardened: bool = False,
    manager: Manager | None = None,
) -> _Found:
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise click.BadParameter("may have letters, digits, `-` and `_`.", param_hint="--name")
    with report_config_errors():
        settings = read_settings()
        state = state_folder(state_dir, settings, os.environ).absolute()
        file = gateway_config_file(config_file, settings, state)
        usual = user_config(settings, os.environ).absolute()
    config = file.path.absolute()
    # A named file must exist, and the first start creates the usual one only where no other has precedence.
    by_folder = config == usual and not (file.missing is False and (Path.home() / FILE_NAME).exists())
    variables = {"PATH": search_path(os.environ)}
    if by_folder:
        variables["POINTSMAN_CONFIG_DIR"] = str(usual.parent)
    named = () if by_folder else ("--config", str(config))
    command = (*own_command(), "serve", *named, "--state-dir", str(state))
    made = Service(name, command, variables, usual.with_name("environment"), state, hardened)
    chosen = manager or this_manager()
    return _Found(made, chosen, service_file(made, chosen, os.environ), config, file.missing)


def _without_choices(text: str) -> list[str]:
    path = re.sub(r"<key>PATH</key>\s*<string>.*?</string>", "", text)
    return [line for line in path.splitlines() if "Environment=PATH=" not in line and line not in HARDENED]


def _named(found: _Found) -> dict[str, Any]:
    return {"name": found.service.name, "manager": found.manager, "file": str(found.file.path)}


def _show_change(found: _Found, before: str | None) -> None:
    if before is None:
        note(f"Create {found.file.path}:\n")
        lines = found.file.text.splitlines()
    else:
        note(f"Change {found.file.path}:\n")
        lines = list(difflib.unified_diff(before.splitlines(), found.file.text.splitlines(), "now", "then", "", "", 2))
    for line in lines:
        note(f"  {line}".rstrip())
    note("")


def _write(found: _Found, before: str | None) -> Path | None:
    """Return the copy of the file that was replaced."""
    path = found.file.path
    try:
        if before is None:
            create(path, found.file.text.encode(), 0o644)
            return None
        backup = next(
            each for number in range(1, 10**6) if not (each := path.with_name(f"{path.name}.{number}.bak")).exists()
        )
        create(backup, before.encode(), 0o644)
        rewrite(path, lambda _: found.file.text)
    except FileExistsError:
        raise CommandError(f"{path} was created by another program just now, and was not changed.") from None
    except ReplaceError as error:
        raise CommandError(str(error)) from error
    return backup


def _missing_variables(found: _Found) -> list[str]:
    """The variables of this shell that the service does not have, though its servers or the gateway may need them."""
    wanted = [*_OWN_VARIABLES, *sorted(NETWORK)]
    if not found.config_missing:
        try:
            document = Document(read_text(found.config), str(found.config), os.environ)
        except ConfigError:
            pass  # reported below
        else:
            wanted += sorted(document.variables)
    given = _given(found.service.environment_file)
    return [name for name in dict.fromkeys(wanted) if os.environ.get(name) and name not in given | {"HOME", "PATH"}]


def _given(file: Path) -> set[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {line.partition("=")[0].strip() for line in lines if "=" in line and not line.lstrip().startswith("#")}


def _say_next(found: _Found, missing: list[str], heading: str) -> None:
    if missing:
        names = ", ".join(missing)
        if found.manager == "systemd":
            where = f"write NAME=value lines into {found.service.environment_file}, and `chmod 600` it"
        else:
            where = f"add them under EnvironmentVariables in {found.file.path}, and `chmod 600` it"
        note(f"The service does not have the variables of this shell: {names}. If it needs them, {where}.\n")
    running = find_running(found.service.state_dir)
    if running is not None and not _is_service(found, running.pid):
        note(f"A gateway (process {running.pid}) uses the state folder now: stop it before you start the service.\n")
    if found.manager == "systemd" and shutil.which("systemctl") is None:
        note(
            "There is no systemctl here. Without systemd, let your service manager run the command after ExecStart=.\n"
        )
    note(f"{heading}:\n")
    width = max(len(command) for command, _ in found.file.start)
    for command, purpose in found.file.start:
        note(f"  {command.ljust(width)}   # {purpose}")
    if found.config_missing:
        note(f"\nThe first start creates {found.config}. Then `pointsman client add NAME` connects a client.")


def _is_service(found: _Found, pid: int) -> bool:
    answer = _ask_systemd(found.service.name) if found.manager == "systemd" else None
    return answer is not None and answer.get("MainPID") == str(pid)


def _ask_systemd(name: str) -> dict[str, str] | None:
    """What systemd says of the service; None: it does not run here, or not for this user."""
    if shutil.which("systemctl") is None:
        return None
    command = ["systemctl", "--user", "show", f"{name}.service", f"--property={','.join(_SHOWN)}"]
    try:
        done = subprocess.run(  # noqa: S603 - the name was checked
            command, capture_output=True, text=True, timeout=ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    found = {key: value for key, _, value in pairs if key in _SHOWN}
    return found if "ActiveState" in found else None


def _status_lines(found: _Found, answer: dict[str, Any]) -> Iterator[str]:
    if not answer["installed"]:
        yield f"file      {paint('not installed', 'yellow')}: `pointsman service install` writes {answer['file']}"
    else:
        other = "" if answer["current"] else " (`pointsman service install` would write other content)"
        yield f"file      {answer['file']}{other}"
        yield f"enabled   {'yes' if answer['enabled'] else f'no: `{found.file.start[1][0]}` enables and starts it'}"
    state = answer["state"]
    if state is not None:
        restarts = f", {state['NRestarts']} restarts" if state.get("NRestarts", "0") != "0" else ""
        shown = f"{state['ActiveState']} ({state.get('SubState', '')}{restarts}) {state.get('StatusText', '')}"
        yield f"service   {shown.rstrip()}"
    elif found.manager == "systemd":
        yield "service   unknown: systemd does not answer for this user here"
    gateway = answer["gateway"]
    if gateway is None:
        yield f"gateway   {paint('not running', 'red')} with the state folder {found.service.state_dir}"
    else:
        own = state is not None and state.get("MainPID") == str(gateway["process"])
        started = "" if state is None or own else ", which the service has not started"
        yield f"gateway   {paint('running', 'green')} on {gateway['url']} (process {gateway['process']}{started})"
