"""The file that makes the gateway a service of this user: a systemd unit, or a launchd agent on macOS."""

from __future__ import annotations

import os
import plistlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Manager = Literal["systemd", "launchd"]
MARKER = "Written by `pointsman service install`."
LABEL = "local.{name}"  # of a launchd agent
_PLAIN = re.compile(r"[A-Za-z0-9_./:@=,+-]+")


@dataclass(frozen=True, slots=True)
class Service:
    """What the service manager has to start, with absolute paths: it has neither the shell's folder nor its PATH."""

    name: str
    command: tuple[str, ...]  # `.../pointsman serve ...`
    variables: Mapping[str, str]  # PATH, and where the configuration is if it does not exist yet
    environment_file: Path  # may have secrets; need not exist
    state_dir: Path
    hardened: bool = False


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """The file of a service, and the commands that concern it."""

    path: Path
    text: str
    link: Path | None  # exists while the service is enabled; None: it is enabled by its file alone
    start: tuple[tuple[str, str], ...]  # commands after the file was written, each with its purpose
    stop: str  # the command that ends it, and disables it


def this_manager() -> Manager:
    return "launchd" if sys.platform == "darwin" else "systemd"


def service_file(service: Service, manager: Manager, environ: Mapping[str, str]) -> ServiceFile:
    return _agent(service, environ) if manager == "launchd" else _unit(service, environ)


def search_path(environ: Mapping[str, str]) -> str:
    """The shell's PATH without what does not exist or depends on the folder: there, `uvx` and `npx` were found."""
    folders = [each for each in environ.get("PATH", os.defpath).split(os.pathsep) if Path(each).is_absolute()]
    return os.pathsep.join(dict.fromkeys(each for each in folders if Path(each).is_dir())) or os.defpath


def _unit(service: Service, environ: Mapping[str, str]) -> ServiceFile:
    folder = Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config") / "systemd" / "user"
    file = f"{service.name}.service"
    control = "systemctl --user"
    return ServiceFile(
        folder / file,
        "\n".join(_unit_lines(service)) + "\n",
        folder / "default.target.wants" / file,
        (
            (f"{control} daemon-reload", "read the file"),
            (f"{control} enable --now {service.name}", "start it now, and whenever you log in"),
            ("loginctl enable-linger", "let it run without a login, and start with the machine"),
            (f"{control} status {service.name}", "see how it is"),
            (f"journalctl --user -u {service.name} -f", "follow its log"),
        ),
        f"{control} disable --now {service.name}",
    )


def _unit_lines(service: Service) -> list[str]:
    # Through `uvx`, the process that sends messages is a child of the one that systemd has started.
    access = "all" if Path(service.command[0]).name == "uvx" else "main"
    return [
        f"# {MARKER} Change it with `systemctl --user edit {service.name}`, which keeps this file as it is.",
        "[Unit]",
        "Description=Pointsman, one URL for all MCP servers",
        "StartLimitIntervalSec=10min",
        "StartLimitBurst=20",
        "",
        "[Service]",
        "Type=notify",
        f"NotifyAccess={access}",
        f"ExecStart={_words(service.command)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        *(f"Environment={_quoted(f'{name}={value}', dollar='$')}" for name, value in service.variables.items()),
        f"EnvironmentFile=-{str(service.environment_file).replace('%', '%%')}",
        "WorkingDirectory=~",
        "",
        "# A failed start is tried again; a mistake in the configuration or on the command line is not.",
        "Restart=on-failure",
        "RestartPreventExitStatus=2",
        "RestartSec=5",
        "TimeoutStartSec=3min",
        "WatchdogSec=2min",
        "",
        "# SIGTERM goes to the gateway alone, which lets calls end before it ends its servers.",
        "KillMode=mixed",
        "TimeoutStopSec=20",
        "# A server that the kernel ends for want of memory is started again by the gateway.",
        "OOMPolicy=continue",
        "LimitNOFILE=16384:524288",
        "LimitCORE=0",
        *(HARDENED if service.hardened else ()),
        "",
        "[Install]",
        "WantedBy=default.target",
    ]


# All of these forbid setuid programs, for the servers too. Sandboxes of files and networks would break `uvx` and `npx`.
HARDENED = (
    "NoNewPrivileges=yes",
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
)


def _words(command: Sequence[str]) -> str:
    program, *arguments = command  # systemd replaces variables in the arguments only
    return " ".join([_quoted(program, dollar="$"), *(_quoted(word, dollar="$$") for word in arguments)])


def _quoted(word: str, dollar: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    return f'"{escaped}"'


def _agent(service: Service, environ: Mapping[str, str]) -> ServiceFile:
    home = _home(environ)
    label = LABEL.format(name=service.name)
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    log = home / "Library" / "Logs" / f"{service.name}.log"
    content = {
        "Label": label,
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": dict(service.variables),
        "WorkingDirectory": str(home),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 20,
        "StandardErrorPath": str(log),
        "SoftResourceLimits": {"NumberOfFiles": 8192},
    }
    text = plistlib.dumps(content, sort_keys=False).decode()
    text = text.replace("<plist ", f"<!-- {MARKER} -->\n<plist ", 1)
    target = f"gui/$(id -u)/{label}"
    return ServiceFile(
        path,
        text,
        None,
        (
            (f"launchctl bootstrap gui/$(id -u) {_shell_quoted(path)}", "start it now, and whenever you log in"),
            (f"launchctl print {target}", "see how it is"),
            (f"launchctl kickstart -k {target}", "start it anew"),
            (f"tail -f {_shell_quoted(log)}", "follow its log"),
        ),
        f"launchctl bootout {target}",
    )


def _shell_quoted(path: Path) -> str:
    return str(path) if _PLAIN.fullmatch(str(path)) else f"'{path}'"


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    return Path(home) if home else Path.home()
