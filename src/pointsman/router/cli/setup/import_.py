"""`pointsman import`: take over the servers that MCP clients, a file or the registry's `server.json` define."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from pointsman.config.edits import InvalidEntryError, NameTakenError, UnknownNameError, add_entries, remove_entry
from pointsman.config.errors import closest
from pointsman.config.files import ReplaceError, create
from pointsman.config.loader import read_text
from pointsman.config.mask import mask_args, mask_url
from pointsman.config.paths import state_folder
from pointsman.config.settings import read_settings
from pointsman.config.yaml.text_edits import EditError
from pointsman.core.escape import escaped
from pointsman.router.cli.common.edited import Edited, reload_after_undo
from pointsman.router.cli.common.gateway_address import configured_url, edited_url
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    confirmed,
    edited_config_option,
    json_option,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.cli.common.output import print_json
from pointsman.router.cli.common.owner import plural
from pointsman.router.cli.setup.client import ClientName
from pointsman.router.clients.client_file import ClientFileError, as_text, bounded_text
from pointsman.router.clients.dialects import DIALECTS, Dialect
from pointsman.router.clients.found_servers import Findings, of_client, of_text
from pointsman.router.clients.import_plan import Addition, Plan, plan_import
from pointsman.router.clients.secret_files import FOLDER
from pointsman.router.clients.undo import Change, latest, recorded

MAX_BYTES = 8 * 1_048_576  # of a file or of stdin


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option("--from", "clients", type=ClientName(), multiple=True, help="Only this client. Repeatable.")
@click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True, help="Which files.")
@click.option("--server", "names", multiple=True, help="Only the server with this name. Repeatable.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be added, and stop.")
@click.option("--undo", is_flag=True, help="Take the last import back.")
@edited_config_option
@state_dir_option
@json_option
def import_(
    file: Path | None,
    clients: tuple[Dialect, ...],
    scope: str,
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    undo: bool,
    config_file: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Add the servers of MCP clients to the configuration. Shows them and asks first.

    Without FILE, looks into the files of all known clients of this user; FILE (`-`: stdin) may have the form of any of
    them, or be a `server.json` of the MCP registry. Secrets move to files beside the configuration. The clients' own
    files stay as they are.
    """
    with _report_errors():
        settings = read_settings()
        state = state_folder(state_dir, settings, os.environ)
        if undo:
            _take_back(state, as_json)
            return
        edited = Edited.find(config_file, state_dir)
        path = edited.path
        findings = _findings(file, clients or tuple(DIALECTS.values()), scope, names)
        own_urls = (edited_url(edited, settings), configured_url(path, settings))
        plan = plan_import(findings, read_text(path), path, own_urls, os.environ)
        if as_json:
            print_json(_as_json(plan))
        else:
            _show(plan, path)
        if not plan.additions:
            note("Nothing to import.")
            if plan.problems:
                sys.exit(1)
            return
        if dry_run or not confirmed(yes):
            return
        problem = _apply(plan, edited, state)
    note(f"Added {plural(len(plan.additions), 'server')} to {path}.")
    edited.note_pending()
    if edited.running and not problem:
        note("The gateway starts them now: `pointsman status` shows which run, `pointsman doctor` what one lacks.")
    note("`pointsman import --undo` takes that back. `pointsman client add NAME` connects a client to the gateway;")
    note("then remove the servers from the client's own file, or its model sees them twice.")
    if problem:
        raise CommandError(*problem.split("\n"))


def _findings(file: Path | None, clients: tuple[Dialect, ...], scope: str, names: tuple[str, ...]) -> list[Findings]:
    if file is not None:
        findings = [of_text(_text_of(file), "stdin" if str(file) == "-" else str(file), os.environ)]
    else:
        folder = Path.cwd() if scope == "project" else None
        findings = [of_client(dialect, os.environ, folder) for dialect in clients]
    if names:
        _require_names(names, findings)
        for one in findings:
            one.servers = [found for found in one.servers if found.name in names]
            one.left_out = [left for left in one.left_out if left.name in names]
    return findings


def _require_names(names: tuple[str, ...], findings: list[Findings]) -> None:
    """Raises ConfigCommandError if a server that was asked for is nowhere."""
    known = [found.name for each in findings for found in each.servers]
    known += [left.name for each in findings for left in each.left_out]
    for name in names:
        if name not in known:
            near = closest(name, known)
            hint = f"Did you mean `{near}`?" if near else "`pointsman import --dry-run` shows what there is."
            unread = [f"Not read: {problem}" for each in findings for problem in each.problems]
            raise ConfigCommandError(f"There is no server `{name}` to import. {hint}", *unread)


def _text_of(file: Path) -> str:
    """Raises ClientFileError."""
    if str(file) == "-":
        return as_text(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin", MAX_BYTES)
    try:
        return bounded_text(file, MAX_BYTES)
    except OSError as error:
        raise ClientFileError(f"{file} cannot be read: {error.strerror}.") from None


def _apply(plan: Plan, edited: Edited, state: Path) -> str:
    """Write the secrets, then the configuration; if that fails, nothing remains.

    Returns why the running gateway does not use the servers yet; "": it does, or none runs.
    """
    path = edited.path
    folder = path.absolute().parent / FOLDER
    written: list[Path] = []
    detail = {"servers": list(plan.servers), "secrets": [str(folder / name) for name in plan.secrets]}
    try:
        with recorded(state, "import", "", [path.absolute()], detail):
            for name, text in plan.secrets.items():
                create(folder / name, text.encode())
                written.append(folder / name)
            return edited.offer(add_entries(path, "servers", plan.servers, os.environ))
    except BaseException:
        _delete(written)
        raise


def _take_back(state: Path, as_json: bool) -> None:
    change: Change | None = latest(state, "import", "")
    if change is None:
        raise CommandError("There is no import to take back.")
    config = Path(next(iter(change.files)))
    if not change.restore(config):  # it has been edited since: only the servers go
        for server_id in change.detail["servers"]:
            with suppress(UnknownNameError):
                remove_entry(config, "servers", server_id, os.environ)
    _delete([Path(secret) for secret in change.detail["secrets"]])
    change.discard()
    reload_after_undo(config, state)
    if as_json:
        print_json({"configuration": str(config), "removed": change.detail["servers"]})
    note(f"The import of {', '.join(change.detail['servers'])} is taken back; see {config}.")


def _delete(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
    if files:
        with suppress(OSError):
            files[0].parent.rmdir()  # if it is empty now


def _show(plan: Plan, path: Path) -> None:
    if plan.additions:
        note(f"Add to {path}:\n")
    for addition in plan.additions:
        note(f"  {addition.server_id:20} {escaped(_summary(addition))}   ({escaped(addition.found.source)})")
        for name in addition.secrets:
            note(f"  {'':20} a secret moves to {FOLDER}/{name}")
        for remark in addition.found.notes:
            note(f"  {'':20} {escaped(remark)}")
    if plan.left_out:
        note(f"{chr(10) if plan.additions else ''}Not added:\n")
    for left in plan.left_out:
        note(f"  {escaped(left.name):20} {escaped(left.reason)}   ({escaped(left.source)})")
    if plan.problems and (plan.additions or plan.left_out):
        note("")
    for problem in plan.problems:
        note(f"Not read: {escaped(problem)}")
    if plan.additions or plan.left_out or plan.problems:
        note("")


def _summary(addition: Addition) -> str:
    server = addition.server
    if "url" in server:
        return mask_url(str(addition.found.server["url"]))  # with the host, whatever has moved to a file
    words = [str(server["command"]), *mask_args([str(arg) for arg in server.get("args", ())])]
    return " ".join(shlex.quote(word) if re.search(r"\s", word) else word for word in words)


def _as_json(plan: Plan) -> dict[str, Any]:
    return {
        "servers": [
            {
                "id": addition.server_id,
                "name": addition.found.name,
                "source": addition.found.source,
                "server": dict(addition.server),
                "secrets": list(addition.secrets),
                "notes": list(addition.found.notes),
            }
            for addition in plan.additions
        ],
        "leftOut": [{"name": left.name, "source": left.source, "reason": left.reason} for left in plan.left_out],
        "problems": plan.problems,
    }


@contextmanager
def _report_errors() -> Iterator[None]:
    with report_config_errors():
        try:
            yield
        except (ClientFileError, ReplaceError) as error:
            raise CommandError(str(error)) from error
        except FileExistsError as error:
            raise CommandError(f"{error.filename} exists already. Try again.") from error
        except InvalidEntryError as error:
            raise ConfigCommandError(
                "Nothing was imported, because a server is not valid here:", *error.messages
            ) from error
        except (EditError, NameTakenError) as error:
            raise CommandError(f"Nothing was imported: {error}.") from error
