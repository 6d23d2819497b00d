"""`pointsman client`: point MCP clients at this gateway, in their own configuration files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pointsman.config.edits import InvalidEntryError, NameTakenError, UnknownNameError, add_token, remove_token
from pointsman.config.errors import closest
from pointsman.config.files import ReplaceError
from pointsman.config.loader import load_tokens
from pointsman.config.paths import state_folder, user_config
from pointsman.config.secrets import digest, new_secret
from pointsman.config.settings import Settings, read_settings
from pointsman.config.yaml.text_edits import EditError
from pointsman.router.cli.common.edited import Edited, reload_after_undo, require_projects
from pointsman.router.cli.common.gateway_address import edited_url, gateway_url, of_project
from pointsman.router.cli.common.options import (
    NO_CONFIG,
    CommandError,
    ConfigCommandError,
    confirmed,
    edited_config_option,
    json_option,
    note,
    report_config_errors,
    state_dir_option,
    unasked_option,
)
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.clients.client_file import ClientFileError
from pointsman.router.clients.dialects import DIALECTS, Dialect, project_file, user_file
from pointsman.router.clients.entry import (
    DEFAULT_NAME,
    PLACEHOLDER,
    Connection,
    NotExpressibleError,
    entry_for,
    own_command,
)
from pointsman.router.clients.setup import Setup, look, masked, secret_in, snippet, take_back, write

_ENTRY_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ClientName(click.ParamType[Dialect]):
    """The name of a client of the table; another one is answered with the nearest."""

    name = "client"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Dialect:
        found = DIALECTS.get(str(value).lower())
        if found is None:
            near = closest(str(value), DIALECTS)
            hint = f" Did you mean `{near}`?" if near else ""
            self.fail(f"No client `{value}` is known.{hint} Known are: {', '.join(DIALECTS)}.", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in DIALECTS if name.startswith(incomplete)]


class EntryName(click.ParamType[str]):
    """The name of a new entry: letters, digits, `-` and `_`, which every client accepts."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _ENTRY_NAME.fullmatch(str(value)):
            self.fail("it may have at most 64 letters, digits, `-` and `_`.", param, ctx)
        return str(value)


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where this gateway's files are, and how a client reaches it."""

    settings: Settings
    edited: Edited | None  # None: there is no configuration
    state: Path
    url: str
    arguments: tuple[str, ...]  # for `pointsman stdio`, where these files are not at their usual places

    @property
    def config(self) -> Path | None:
        return self.edited.path if self.edited is not None else None


client_argument = click.argument("dialect", metavar="NAME", type=ClientName())
scope_option = click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="The client's file of this user, or the one of the project in this folder.",
)
name_option = click.option("--as", "name", default=DEFAULT_NAME, show_default=True, help="Name of the entry.")
new_name_option = click.option(
    "--as", "name", type=EntryName(), default=DEFAULT_NAME, show_default=True, help="Name of the entry."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        (
            click.option("--project", help="Project to work in."),
            click.option("--url", help="URL of a gateway elsewhere. Default: the one of this configuration."),
            click.option("--stdio", is_flag=True, help="Let the client start `pointsman stdio` instead of using HTTP."),
            click.option("--env", "variable", metavar="VARIABLE", help="Write a reference to this variable, no token."),
        )
    ):
        command = option(command)
    return command


@click.group()
def client() -> None:
    """Connect MCP clients such as Claude Code, Cursor or VS Code to this gateway."""


@client.command("print")
@client_argument
@connection_options
@new_name_option
@edited_config_option
@state_dir_option
@json_option
def print_(
    dialect: Dialect,
    project: str | None,
    url: str | None,
    stdio: bool,
    variable: str | None,
    name: str,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Print the entry for the client NAME, to paste it by hand. Changes nothing.

    The token is that in POINTSMAN_TOKEN, otherwise a placeholder.
    """
    with _report_errors():
        gateway = find_gateway(config_file, state_dir)
        token = gateway.settings.token
        secret = token.get_secret_value() if token is not None else PLACEHOLDER
        connection = _connection(dialect, gateway, project, url, stdio, variable, secret)
        entry = entry_for(dialect, connection, name)
        text = snippet(dialect, name, entry)
    if as_json:
        path = str(user_file(dialect, os.environ))
        print_json({"client": dialect.name, "file": path, "name": name, "entry": entry, "text": text})
    else:
        echo(text, nl=False)
    note(f"This belongs into {user_file(dialect, os.environ)}; `pointsman client add {dialect.name}` writes it there.")
    if variable is None and token is None:
        note(f"Put a token in the place of `{PLACEHOLDER}`: `pointsman token create NAME` prints one.")


@client.command()
@client_argument
@connection_options
@scope_option
@new_name_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Show what would change, and stop.")
@edited_config_option
@state_dir_option
@json_option
def add(
    dialect: Dialect,
    project: str | None,
    url: str | None,
    stdio: bool,
    variable: str | None,
    scope: str,
    name: str,
    yes: bool,
    dry_run: bool,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Write an entry for this gateway into the file of the client NAME.

    Creates a token for the client, unless POINTSMAN_TOKEN holds one, the entry has one that is valid, or --env names
    a variable. Nothing else in the file changes, and `pointsman client undo NAME` takes it back.
    """
    with _report_errors():
        gateway = find_gateway(config_file, state_dir)
        if project and url is None and gateway.config is not None:
            require_projects(gateway.config, [project])
        setup = look(dialect, _path(dialect, scope), name)
        shared = scope == "project" and variable is None
        if shared:
            variable = "POINTSMAN_TOKEN"
        token = _token_for(setup, gateway, url, variable)
        connection = _connection(dialect, gateway, project, url, stdio, variable, token.secret)
        entry = _shared_entry(setup, connection) if shared else entry_for(dialect, connection, name)
        wanted = setup.entry != entry
        if wanted:
            _show(setup, entry, token)
        else:
            note(f"{dialect.title} is set up already in {setup.path}; nothing to change.")
        if not wanted or dry_run or not confirmed(yes):
            _print_result(as_json, setup, changed=False, token=None)
            return
        problem = token.create(project)
        try:
            write(setup, entry, gateway.state, {"token": token.new_name, "config": str(gateway.config or "")})
        except BaseException:
            token.take_back()
            raise
    _print_result(as_json, setup, changed=True, token=token.new_name)
    note(f"{dialect.title} is set up: {setup.path}. {dialect.after}")
    _warn(setup, variable)
    if problem:
        raise CommandError(*problem.split("\n"))


@client.command()
@client_argument
@scope_option
@name_option
@yes_option
@edited_config_option
@state_dir_option
@json_option
def remove(
    dialect: Dialect, scope: str, name: str, yes: bool, config_file: Path | None, state_dir: Path | None, as_json: bool
) -> None:
    """Remove this gateway's entry from the file of the client NAME."""
    with _report_errors():
        gateway = find_gateway(config_file, state_dir)
        setup = look(dialect, _path(dialect, scope), name)
        if setup.entry is None:
            raise CommandError(f"{setup.path} has no entry `{name}`; nothing to remove.")
        note(f"Remove from {setup.path}:\n\n{_indented(masked(snippet(dialect, name, setup.entry)))}")
        token = _token_of(setup, gateway)
        if not confirmed(yes):
            _print_result(as_json, setup, changed=False, token=token)
            return
        write(setup, None, gateway.state, {})
    _print_result(as_json, setup, changed=True, token=token)
    note(f"Removed. A running {dialect.title} may use it until it is started anew.")
    note(f"`pointsman client undo {dialect.name}` puts it back.")
    if token is not None:
        note(f"Its token `{token}` is still valid; `pointsman token revoke {token}` ends that.")


@client.command()
@client_argument
@unasked_option
@edited_config_option
@state_dir_option
@json_option
def undo(dialect: Dialect, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Take back the last change of the file of the client NAME, and the token that was created for it."""
    with _report_errors():
        gateway = find_gateway(config_file, state_dir)
        change = take_back(dialect, gateway.state)
        if change is None:
            raise CommandError(f"There is no change of {dialect.title} to take back.")
        token = change.detail.get("token")
        if token:
            _remove_token(Path(change.detail["config"]), token)
    change.discard()
    if token:
        reload_after_undo(Path(change.detail["config"]), gateway.state)
    if as_json:
        print_json({"client": dialect.name, "file": next(iter(change.files)), "changed": True, "token": token})
    note(f"{next(iter(change.files))} is as it was before{f', and token `{token}` is revoked' if token else ''}.")


@dataclass(slots=True)
class _ClientToken:
    """The token that a client's entry carries: one that exists, or one that is created with the entry."""

    secret: str
    explanation: str
    edited: Edited | None = None
    new_name: str | None = None  # None: nothing is created
    created: bool = False

    def create(self, project: str | None) -> str:
        """Return why the running gateway does not know the token yet; "": it does, or none runs."""
        if self.new_name is None or self.edited is None:
            return ""
        projects = [project] if project is not None else ["*"]
        path, sha256 = self.edited.path, digest(self.secret)
        change = add_token(path, self.new_name, sha256, projects, ["*"], None, os.environ)
        self.created = True
        return self.edited.offer(change)

    def take_back(self) -> None:
        if self.created and self.new_name is not None and self.edited is not None:
            _remove_token(self.edited.path, self.new_name)


def _token_for(setup: Setup, gateway: Gateway, url: str | None, variable: str | None) -> _ClientToken:
    if variable is not None:
        return _ClientToken(PLACEHOLDER, f"It refers to the variable {variable}, which must hold a token.")
    if gateway.settings.token is not None:
        return _ClientToken(gateway.settings.token.get_secret_value(), "It has the token in POINTSMAN_TOKEN.")
    if url is not None:
        raise CommandError("A gateway elsewhere has its own tokens: set POINTSMAN_TOKEN to one of them, or pass --env.")
    if gateway.edited is None:
        raise ConfigCommandError(NO_CONFIG)
    present = secret_in(setup.entry)
    if present is not None and _token_of(setup, gateway) is not None:
        return _ClientToken(present, "It keeps its token.")
    taken = load_tokens(gateway.edited.path, os.environ)
    stem = setup.dialect.name
    name = next(name for name in (stem, *(f"{stem}-{n}" for n in range(2, 10**6))) if name not in taken)
    explanation = f"A token `{name}` is created in {gateway.edited.path}."
    earlier = [one for one in taken if re.fullmatch(rf"{re.escape(stem)}(-\d+)?", one)]
    if earlier:
        still, revoke = ("stays", earlier[0]) if len(earlier) == 1 else ("stay", "NAME")
        names = ", ".join(f"`{one}`" for one in earlier)
        explanation += f" {names} {still} valid: if nothing else uses it, run `pointsman token revoke {revoke}`."
    return _ClientToken(new_secret(), explanation, gateway.edited, name)


def _token_of(setup: Setup, gateway: Gateway) -> str | None:
    """The name of the valid token of our configuration that the entry carries."""
    secret = secret_in(setup.entry)
    if secret is None or gateway.config is None:
        return None
    now = datetime.now(UTC)
    for name, token in load_tokens(gateway.config, os.environ).items():
        if token.sha256 == digest(secret) and (token.expires is None or token.expires > now):
            return name
    return None


def _remove_token(config: Path, name: str) -> None:
    with suppress(UnknownNameError):  # it is revoked already
        remove_token(config, name, os.environ)


def find_gateway(config_file: Path | None, state_dir: Path | None) -> Gateway:
    """Raises ConfigError, NoHomeError, CommandError."""
    settings = read_settings()
    state = state_folder(state_dir, settings, os.environ)
    edited = Edited.find_any(config_file, state_dir)
    config = edited.path if edited is not None else None
    usual = {**os.environ, "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}  # an app on the desktop has no more than HOME
    plain = settings.model_copy(update={"config_dir": None, "state_dir": None})
    arguments: tuple[str, ...] = ()
    if config is not None and config.absolute() != user_config(plain, usual):
        arguments += ("--config", str(config.absolute()))
    if state.absolute() != state_folder(None, plain, usual):
        arguments += ("--state-dir", str(state.absolute()))
    url = edited_url(edited, settings) if edited is not None else gateway_url(None, settings, state)
    return Gateway(settings, edited, state, url, arguments)


def _connection(
    dialect: Dialect,
    gateway: Gateway,
    project: str | None,
    url: str | None,
    stdio: bool,
    variable: str | None,
    secret: str,
) -> Connection:
    if not stdio and dialect.http is not None:
        return Connection(of_project(url or gateway.url, project), secret, variable)
    if url is not None:
        raise CommandError(
            "`pointsman stdio` connects to the gateway of this machine only. docs/guide/clients.md shows how a client "
            "that starts commands reaches another one with mcp-remote."
        )
    chosen = ("--project", project) if project is not None else ()
    return Connection("", secret, variable, (*own_command(), "stdio", *gateway.arguments, *chosen))


def _path(dialect: Dialect, scope: str) -> Path:
    if scope == "user":
        return user_file(dialect, os.environ)
    folder = Path.cwd()
    path = project_file(dialect, folder)
    if path is None:
        raise CommandError(f"{dialect.title} has no file for projects; leave --scope away.")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CommandError(f"{path} leads out of this folder, to {path.resolve()}; nothing was changed.")
    return path


def _shared_entry(setup: Setup, connection: Connection) -> dict[str, Any]:
    """The entry of a file that others share, which must not hold a token."""
    try:
        return entry_for(setup.dialect, connection, setup.name)
    except NotExpressibleError:
        raise CommandError(
            f"{setup.path} is for everybody who works on the project, so it must not hold a token, and "
            f"{setup.dialect.title} does not read variables there. Leave --scope away: your own file is then used."
        ) from None


def _show(setup: Setup, entry: dict[str, Any], token: _ClientToken) -> None:
    verb = "Create" if setup.contents.text is None else "Add to" if setup.entry is None else "Replace in"
    note(f"{verb} {setup.path}:\n\n{_indented(masked(snippet(setup.dialect, setup.name, entry)))}\n{token.explanation}")


def _print_result(as_json: bool, setup: Setup, *, changed: bool, token: str | None) -> None:
    """`token` is the name of the one that was created, or that the removed entry had."""
    if as_json:
        path = str(setup.path)
        print_json({"client": setup.dialect.name, "file": path, "name": setup.name, "changed": changed, "token": token})


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _warn(setup: Setup, variable: str | None) -> None:
    if variable is None and setup.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        note(f"Others on this machine can read the token in that file: `chmod 600 '{setup.path}'` ends that.")
    if variable is not None and not os.environ.get(variable):
        note(f"Set {variable} where {setup.dialect.title} is started. `pointsman token create NAME` prints a token.")


@contextmanager
def _report_errors() -> Iterator[None]:
    with report_config_errors():
        try:
            yield
        except (ClientFileError, ReplaceError, NotExpressibleError) as error:
            raise CommandError(str(error)) from error
        except InvalidEntryError as error:
            raise ConfigCommandError(*error.messages) from error
        except (EditError, NameTakenError) as error:
            raise CommandError(f"The token could not be created: {error}.") from error
