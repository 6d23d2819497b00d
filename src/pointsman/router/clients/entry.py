"""The entry that points a client at this gateway, in the client's own form."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.router.clients.dialects import Dialect, Template

DEFAULT_NAME = "pointsman"
PLACEHOLDER = "ptm_..."
_UV_CACHE = "archive-v0"  # in the path of an environment that `uvx` may delete


class NotExpressibleError(Exception):
    """The client cannot write this down. `str(error)` is shown to the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How the client reaches the gateway. With `command`, it starts that; otherwise it uses the URL."""

    url: str
    secret: str = PLACEHOLDER
    variable: str | None = None  # the name of an environment variable that holds the token, instead of `secret`
    command: tuple[str, ...] = ()


def entry_for(dialect: Dialect, connection: Connection, name: str = DEFAULT_NAME) -> dict[str, Any]:
    """Raises NotExpressibleError."""
    template = _template(dialect, connection)
    secret = connection.secret
    if connection.variable is not None:
        literal = dialect.variable is None or (bool(connection.command) and not dialect.variable_in_env)
        if literal and template is not dialect.http_with_variable:
            raise NotExpressibleError(
                f"{dialect.title} does not read variables here. Leave --env away: the token is then written."
            )
        secret = (dialect.variable or "").replace("NAME", connection.variable)
    command = connection.command or ("",)
    values = {
        "{url}": connection.url,
        "{variable}": connection.variable or "",
        "{command}": command[0],
        "{args}": list(command[1:]),
        "{line}": list(command),
    }
    entry = _filled(template, values, secret)
    if "name" in entry:
        entry["name"] = name
    assert isinstance(entry, dict)
    return entry


def own_command() -> tuple[str, ...]:
    """The absolute command that starts this program: a desktop app does not have the shell's PATH."""
    beside = Path(sys.executable).with_name("pointsman")
    if _is_run_by_uvx() and (uvx := shutil.which("uvx")) is not None:
        return (str(Path(uvx).absolute()), "pointsman")
    if beside.exists():
        return (str(beside.absolute()),)
    found = shutil.which("pointsman")
    return (str(Path(found).absolute()),) if found else (sys.executable, "-P", "-m", "pointsman")


def typed_command() -> str:
    """The command that starts this program as its user can type it in another terminal."""
    if _is_run_by_uvx():
        return "uvx pointsman"  # which has put `pointsman` on the PATH of this process only
    if shutil.which("pointsman"):
        return "pointsman"
    program, *rest = own_command()
    with suppress(ValueError):  # it is not below this folder
        program = str(Path(program).relative_to(Path.cwd()))
    return shlex.join((program, *rest))


def _is_run_by_uvx() -> bool:
    return _UV_CACHE in Path(sys.executable).parts


def _template(dialect: Dialect, connection: Connection) -> Template:
    if connection.command:
        return dialect.stdio
    if dialect.http is None:
        raise NotExpressibleError(f"{dialect.title} can only start commands.")
    if connection.variable is not None and dialect.http_with_variable is not None:
        return dialect.http_with_variable
    return dialect.http


def _filled(template: Any, values: Mapping[str, Any], secret: str) -> Any:
    if isinstance(template, Mapping):
        return {key: _filled(value, values, secret) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, values, secret) for value in template]
    if not isinstance(template, str):
        return template
    return values[template] if template in values else template.replace("{secret}", secret)
