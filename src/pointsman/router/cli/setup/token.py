"""`pointsman token`: create, list and revoke tokens. A secret is printed once; the file keeps its hash."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from pointsman.config.edits import InvalidEntryError, NameTakenError, UnknownNameError, add_token, remove_token
from pointsman.config.errors import ConfigError
from pointsman.config.expiry import has_expired, read_expiry, show_expiry
from pointsman.config.files import ReplaceError
from pointsman.config.loader import load_tokens
from pointsman.config.model import Token
from pointsman.config.secrets import digest, new_secret
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.config.settings import read_settings
from pointsman.config.yaml.text_edits import EditError
from pointsman.router.cli.common.edited import Edited, require_projects
from pointsman.router.cli.common.gateway_address import edited_url
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    edited_config_option,
    json_option,
    load_gateway_config,
    note,
    report_config_errors,
    state_dir_option,
    unasked_option,
)
from pointsman.router.cli.common.output import echo, print_json, table
from pointsman.router.clients.dialects import DIALECTS, Dialect
from pointsman.router.clients.entry import DEFAULT_NAME, Connection, entry_for, own_command
from pointsman.router.clients.setup import snippet
from pointsman.router.owner.description import unseen_servers, unseen_text


def _complete_clients(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in (*DIALECTS, "all") if name.startswith(incomplete)]


def _complete_tokens(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        edited = Edited.find(context.params.get("config_file"), context.params.get("state_dir"))
        names = load_tokens(edited.path, os.environ)
    except (click.ClickException, ConfigError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


_STILL_WORKS = "TOKEN `{}` STILL WORKS: the running gateway accepts it until this is corrected or it is stopped."


@click.group()
def token() -> None:
    """Create, list and revoke the tokens of clients."""


@token.command()
@click.argument("name", required=False)
@click.option(
    "--project",
    "projects",
    multiple=True,
    help='Project the token may act for; "*" for all, "" for calls without a project. Repeatable.',
)
@click.option("--server", "servers", multiple=True, help='Server the token may use; "*" for all. Repeatable.')
@click.option("--read-only", is_flag=True, help="Only tools that read: the same as --scope read.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What its tools may do; by default all three. Repeatable.",
)
@click.option(
    "--tools",
    "tools",
    multiple=True,
    metavar="PATTERN",
    help='Tools it may use, such as "github:get_*", or "!github:*" for all others; by default all. Repeatable.',
)
@click.option(
    "--expires", help="Expiry: a date (2027-01-31, inclusive), a time, or a duration from now (12h, 30d, 8w)."
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    shell_complete=_complete_clients,
    help="Also print the entry of this client with the token; `all` for every known client. Repeatable.",
)
@edited_config_option
@state_dir_option
@json_option
def create(
    name: str | None,
    projects: tuple[str, ...],
    servers: tuple[str, ...],
    read_only: bool,
    scopes: tuple[Scope, ...],
    tools: tuple[str, ...],
    expires: str | None,
    clients: tuple[str, ...],
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Add the token NAME and print its secret, which is not shown again.

    On a terminal, what is not given is asked for, with a default.
    """
    if name is None or (not projects and not servers):
        name, projects, servers = _ask_for_rights(name, projects, servers)
    scopes = _scopes(read_only, scopes)
    dialects = _dialects(clients)
    until = _expiry(expires, datetime.now(UTC)) if expires is not None else None
    secret = new_secret()
    edited = Edited.find(config_file, state_dir)
    path = edited.path
    with report_config_errors(), _report_edit_errors(path):
        require_projects(path, projects)
        try:
            change = add_token(
                path, name, digest(secret), projects, servers, until, os.environ, scopes=scopes, tools=tools
            )
        except NameTakenError:
            step = f"Revoke it with `pointsman token revoke {name}`, or choose another name"
            raise ConfigCommandError(f"Token `{name}` already exists in {path}. {step}.") from None
    problem = edited.offer(change)
    entries = _entries(dialects, secret, edited)
    if as_json:
        print_json({"name": name, "token": secret, **({"entries": entries} if entries else {})}, indent=None)
    else:
        echo(secret)
        for client, entry in entries.items():
            echo(f"\n# {client}\n{entry}", nl=False)
    note(
        f"Added token `{name}` to {path}. The secret is not shown again; clients send `Authorization: Bearer <secret>`."
    )
    if not entries:
        note("`pointsman client add NAME` sets up a client; `pointsman client list` shows which are known.")
    _warn_if_useless(name, projects, servers)
    _warn_of_unseen_servers(path, name)
    if problem:  # told last: the secret is in the file, and cannot be printed again
        raise CommandError(f"Token `{name}` works only once this is corrected:", *problem.split("\n"))


@token.command(name="list")
@edited_config_option
@state_dir_option
@json_option
def list_tokens(config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Print all tokens and what they may use."""
    edited = Edited.find(config_file, state_dir)
    with report_config_errors():
        tokens = load_tokens(edited.path, os.environ)
    now = datetime.now(UTC)
    if as_json:
        print_json([_row(name, entry, now) for name, entry in tokens.items()])
    else:
        for line in _table(tokens, now):
            echo(line)


@token.command()
@click.argument("name", shell_complete=_complete_tokens)
@unasked_option
@edited_config_option
@state_dir_option
@json_option
def revoke(name: str, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Remove the token NAME. A running gateway rejects it from then on.

    So it does if the file has a mistake elsewhere, unless the tokens cannot be read: the command then says that the
    token still works.
    """
    edited = Edited.find(config_file, state_dir)
    path = edited.path
    with _still_works(name, edited.running), report_config_errors(), _report_edit_errors(path):
        try:
            change = remove_token(path, name, os.environ)
        except UnknownNameError as error:
            step = "List them with `pointsman token list`."
            near = f" Did you mean `{error.hint}`?" if error.hint else ""
            raise UnknownTokenError(f"No token `{name}` in {path}. {step}{near}") from None
    problem, withdrawn = edited.offer_removal(change)
    if as_json:
        print_json({"name": name, "configuration": str(path), "inEffect": not problem or withdrawn}, indent=None)
    note(f"Token `{name}` removed from {path}.")
    if problem and withdrawn:
        note(f"The running gateway rejects the token from now on. Apart from that, {problem}")
    elif problem:
        raise CommandError(_STILL_WORKS.format(name), *problem.split("\n"))


class UnknownTokenError(ConfigCommandError):
    """The configuration does not have the token."""


@contextmanager
def _still_works(name: str, running: bool) -> Iterator[None]:
    """Say with the error of a removal that the token is accepted as before, if a gateway runs."""
    try:
        yield
    except UnknownTokenError:
        raise
    except CommandError as error:
        if not running:
            raise
        raise type(error)(_STILL_WORKS.format(name), *error.message.split("\n")) from error


def _dialects(clients: Sequence[str]) -> list[Dialect]:
    """Return the clients of `--client`, before a token is created for them."""
    if "all" in clients:
        return list(DIALECTS.values())
    unknown = [name for name in clients if name not in DIALECTS]
    if unknown:
        raise ConfigCommandError(f"No client `{unknown[0]}` is known. Known are: {', '.join(DIALECTS)}.")
    return [DIALECTS[name] for name in clients]


def _entries(dialects: Sequence[Dialect], secret: str, edited: Edited) -> dict[str, str]:
    """Return for each client the entry to paste, with the token in it."""
    if not dialects:
        return {}
    with report_config_errors():
        url = edited_url(edited, read_settings())
    stdio = (*own_command(), "stdio")
    return {
        dialect.name: snippet(
            dialect,
            DEFAULT_NAME,
            entry_for(dialect, Connection(url, secret) if dialect.http else Connection("", secret, command=stdio)),
        )
        for dialect in dialects
    }


def _ask_for_rights(
    name: str | None, projects: tuple[str, ...], servers: tuple[str, ...]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Ask for what was not given, on a terminal only: a script gets what it asked for."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        if name is None:
            raise ConfigCommandError("A token needs a name: pointsman token create NAME.")
        return name, projects, servers
    if name is None:
        host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0]).strip("-") or "laptop"
        name = str(click.prompt("Name of the token", default=host, err=True))
    if not projects:
        projects = _ask_for_names("Projects it may act for (`*`: all)")
    if not servers:
        servers = _ask_for_names("Servers it may use (`*`: all)")
    return name, projects, servers


def _ask_for_names(question: str) -> tuple[str, ...]:
    answer = str(click.prompt(question, default="*", err=True))
    return tuple(part.strip() for part in answer.split(",") if part.strip())


@contextmanager
def _report_edit_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except ReplaceError as error:
        raise CommandError(str(error)) from error
    except InvalidEntryError as error:
        raise ConfigCommandError(*error.messages) from error
    except EditError as error:
        raise CommandError(f"{path}: {error}.") from error


def _warn_if_useless(name: str, projects: Sequence[str], servers: Sequence[str]) -> None:
    if not projects:
        note(f"It may act for no project yet, so every call is denied. Add projects under `tokens.{name}.projects`,")
        note('or create it with --project P (--project "" for calls without a project, --project "*" for all).')
    if not servers:
        note(f"It may use no server yet, so a gateway shows it no tools. Add servers under `tokens.{name}.servers`,")
        note('or create it with --server S (--server "*" for all). The search service checks projects only.')


def _scopes(read_only: bool, scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    if not read_only:
        return scopes
    if set(scopes) - {"read"}:
        raise click.UsageError("--read-only is --scope read; give one of them.")
    return ("read",)


def _warn_of_unseen_servers(path: Path, name: str) -> None:
    """Name the servers whose tools a token does not see because nobody trusts what they say of them."""
    try:
        config = load_gateway_config(path)
    except ConfigError:
        return  # told already, or by whoever starts the gateway
    if unseen := unseen_servers(config, name):
        note(unseen_text(name, unseen))


def _expiry(given: str, now: datetime) -> str:
    """Return the expiry as the file stores it."""
    try:
        return read_expiry(given, now)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--expires") from None


def _row(name: str, entry: Token, now: datetime) -> dict[str, object]:
    return {
        "name": name,
        "projects": entry.projects,
        "servers": entry.servers,
        "scopes": entry.scopes,
        "tools": entry.tools,
        "expires": show_expiry(entry.expires),
        "expired": has_expired(entry.expires, now),
    }


def _table(tokens: Mapping[str, Token], now: datetime) -> Iterator[str]:
    rows = [("NAME", "PROJECTS", "SERVERS", "SCOPES", "TOOLS", "EXPIRES")]
    for name, entry in tokens.items():
        expired = has_expired(entry.expires, now)
        expires = (show_expiry(entry.expires) or "never") + (" (expired)" if expired else "")
        scopes = "all" if entry.scopes == SCOPES else ", ".join(entry.scopes)
        tools = "all" if entry.tools is None else ", ".join(entry.tools)
        rows.append((name, _join_names(entry.projects), _join_names(entry.servers), scopes, tools, expires))
    return table(rows)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(name or '""' for name in names) or "none"
