"""`pointsman pin`: the definitions of servers that were approved, and those that wait for approval."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pointsman.config.errors import closest
from pointsman.core.escape import escaped
from pointsman.core.given_path import GivenPath
from pointsman.router.cli.common.options import CommandError, ConfigCommandError, json_option, note, state_dir_option
from pointsman.router.cli.common.output import echo, paint, print_json, table
from pointsman.router.cli.common.owner import ask_gateway, complete, plural, progress

WAIT_S = 60.0
MAX_FILE_BYTES = 64 << 20
MAX_BATCH_BYTES = 500_000  # the gateway takes twice as much
_COLOURS = {"+": "green", "-": "red"}
NONE = "does not run, or lists nothing, and nothing of it is approved"
_REASONS = {
    "changed": "changed",
    "new": "new",
    "waiting": "waits: its pins were lost",
    "not stored": "not offered: it is not known what was approved",
}

target_argument = click.argument("targets", nargs=-1, metavar="[SERVER[:NAME]]...", shell_complete=complete("servers"))
file_option = click.option("--file", type=GivenPath(), help="A file that `pin export` wrote.")


@click.group()
def pin() -> None:
    """Review and approve what servers say about their tools, when it changes."""


@pin.command(name="list")
@target_argument
@state_dir_option
@json_option
def list_pins(targets: tuple[str, ...], state_dir: Path | None, as_json: bool) -> None:
    """List how many definitions of each server are approved, and name those that wait."""
    servers, problem = _asked(state_dir, targets, with_off=True)
    if as_json:
        print_json({"servers": servers})
        return
    if not servers:
        note("No server has pins.")
        return
    rows = [["SERVER", "PIN", "APPROVED", "WAITING", "GONE"]]
    rows += [
        [one["id"], one["pin"], str(one["approved"]), str(len(one["held"])), str(one["goneCount"])] for one in servers
    ]
    for line in table(rows):
        echo(line)
    for server_id, one in _held(servers):
        echo(f"{_name(server_id, one)}: {_REASONS[one['reason']]}")
    for line in _gone(servers):
        echo(line)
    _advise(servers, problem)


@pin.command()
@target_argument
@state_dir_option
@json_option
def diff(targets: tuple[str, ...], state_dir: Path | None, as_json: bool) -> None:
    """Show what has changed in the definitions that wait, line by line. A new one has added lines only."""
    servers, problem = _asked(state_dir, targets, diffs=True)
    if as_json:
        print_json({"servers": servers})
        return
    for server_id, one in _held(servers):
        _show(server_id, one)
    for line in _gone(servers):
        echo(line)
    _advise(servers, problem)


@pin.command()
@target_argument
@click.option("--all", "everything", is_flag=True, help="All definitions of all servers that wait.")
@file_option
@click.option("--gone", is_flag=True, help="Forget those that are no longer listed: if one comes back, it waits.")
@click.option("--yes", "-y", is_flag=True, help="Do not show the differences and ask.")
@state_dir_option
@json_option
def approve(
    targets: tuple[str, ...],
    everything: bool,
    file: Path | None,
    gone: bool,
    yes: bool,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Approve definitions that wait: of a server, one of them, or those that are in a file.

    They can be used at once. One that changes again before that waits on. With --gone, accept instead that approved
    definitions are no longer listed.
    """
    if not targets and not everything and file is None:
        raise ConfigCommandError("Name a server or one of its definitions, or pass --all or --file.")
    _refuse_both(targets, everything)
    if as_json and not yes:
        raise ConfigCommandError("With --json, pass --yes: there is nobody to ask.")
    if gone:
        _forget(state_dir, targets, file, yes=yes, as_json=as_json)
        return
    servers, _ = _asked(state_dir, targets, diffs=not yes, refused="Nothing was approved")
    if file is not None:
        servers = _only_those_in(_read_file(file), servers)
    chosen = [one for one in servers if one["held"] or one["waits"]]
    if not chosen:
        note("Nothing waits for approval.")
    elif not yes:
        for server_id, one in _held(chosen):
            _show(server_id, one)
        if not sys.stdin.isatty():
            raise ConfigCommandError("Nothing was approved: this is no terminal, so add --yes to approve it.")
        count = sum(len(one["held"]) for one in chosen)
        click.confirm(f"Approve {plural(count, 'definition')}?", abort=True)
    approved = {one["id"]: _approve(state_dir, one["id"], one["held"], as_json=as_json) for one in chosen}
    if as_json:
        print_json({"approved": approved})


@pin.command()
@file_option
@state_dir_option
@json_option
def check(file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Compare what servers list now with what is approved, or with a file. Exit code 1: it differs."""
    if file is None:
        servers, _ = _asked(state_dir, ())
        found = [_name(server_id, one) + f": {_REASONS[one['reason']]}" for server_id, one in _held(servers)]
        found += [f"{one['id']}: lists nothing, or does not run" for one in servers if not one["listed"]]
        found += _gone(servers)
    else:
        with progress("Asking the servers ..."):
            found = [*_differences(_read_file(file), ask_gateway(state_dir, "pin_definitions", timeout_s=WAIT_S))]
    if as_json:
        print_json({"differences": found})
    else:
        for line in found:
            echo(escaped(line))
        note("No difference." if not found else f"{plural(len(found), 'difference')}.")
    if found:
        sys.exit(1)


@pin.command()
@click.argument("file", type=GivenPath())
@state_dir_option
@json_option
def export(file: Path, state_dir: Path | None, as_json: bool) -> None:
    """Write the approved definitions to FILE, as digests, for a repository: those that servers list now.

    Of a server that does not run, all that are approved. Exit code 1: some servers are left out or incomplete.
    """
    with progress("Asking the servers ..."):
        answer = ask_gateway(state_dir, "pin_definitions", timeout_s=WAIT_S)
    servers: dict[str, Any] = {}
    for server_id, kinds in (answer["servers"] | answer["stored"]).items():
        approved = {
            kind: {name: {"whole": one["whole"], "schema": one["schema"]} for name, one in sorted(listed.items())}
            for kind, every in sorted(kinds.items())
            if (listed := {name: one for name, one in every.items() if one["approved"]})
        }
        if approved:
            servers[server_id] = approved
    document = {"format": answer["format"], "servers": servers}
    try:
        file.write_text(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n")
    except OSError as error:
        raise CommandError(f"Could not write {file}: {error.strerror}.") from error
    count = sum(len(listed) for kinds in servers.values() for listed in kinds.values())
    left_out = {
        server_id: f"does not run, and {plural(number, 'definition')} of it cannot be named" if number else NONE
        for server_id, number in answer["unnamed"].items()
        if number or server_id not in servers
    }
    if as_json:
        print_json({"file": str(file), "definitions": count, "servers": len(servers), "left_out": left_out})
    else:
        note(f"Wrote {plural(count, 'definition')} of {plural(len(servers), 'server')} to {file}.")
        for server_id, reason in left_out.items():
            note(f"`{escaped(server_id)}` is left out or incomplete: it {reason}.")
    if left_out:
        sys.exit(1)


# ------------------------------------------------------------------ helpers


def _refuse_both(targets: tuple[str, ...], everything: bool) -> None:
    if targets and everything:
        raise ConfigCommandError("Nothing was approved: name what to approve, or pass --all for everything; not both.")


def _asked(
    state_dir: Path | None, targets: tuple[str, ...], *, diffs: bool = False, with_off: bool = False, refused: str = ""
) -> tuple[list[Any], str]:
    """The servers that are named, or all; of a server with a name, only the definitions of that name.

    And why the pins cannot be used, which is printed; with `refused`, that ends the command.
    """
    wanted: dict[str, set[str]] = {}
    for target in targets:
        server_id, _, name = target.partition(":")
        wanted.setdefault(server_id, set()).add(name)
    named: list[str | None] = [*wanted] or [None]
    with progress("Asking the servers ..."):
        answers = [ask_gateway(state_dir, "pins", timeout_s=WAIT_S, server=one, diffs=diffs) for one in named]
    problem = answers[-1]["problem"]
    if problem and refused:
        raise CommandError(f"{refused}: the pins cannot be used. {problem}")
    if problem:
        note(f"The pins cannot be used: {problem}")
    servers = [one for answer in answers for one in answer["servers"]]
    if with_off:
        nothing = {"pin": "off", "approved": 0, "waits": False, "listed": False, "held": [], "gone": [], "goneCount": 0}
        servers += [{"id": one, **nothing} for answer in answers for one in answer["off"]]
    for one in servers:
        names = wanted.get(one["id"], {""})
        if "" not in names:
            waiting = [each["name"] for each in (*one["held"], *one["gone"])]
            one["held"] = [each for each in one["held"] if each["name"] in names]
            one["gone"] = [each for each in one["gone"] if each["name"] in names]
            one["goneCount"] = len(one["gone"])
            if missing := names - {each["name"] for each in (*one["held"], *one["gone"])}:
                raise _nothing_waits(one["id"], min(missing), waiting)
    return servers, problem


def _nothing_waits(server_id: str, name: str, waiting: Sequence[str]) -> ConfigCommandError:
    near = closest(name, waiting)
    hint = f" Did you mean `{escaped(server_id)}:{escaped(near)}`?" if near is not None else ""
    return ConfigCommandError(f"No `{escaped(name)}` of `{escaped(server_id)}` waits for approval.{hint}")


def _approve(state_dir: Path | None, server_id: str, held: list[Any], *, as_json: bool) -> list[Any]:
    approved: list[Any] = []
    for definitions in _batches([{key: each[key] for key in ("kind", "name", "digest")} for each in held]):
        done = ask_gateway(state_dir, "approve_pins", timeout_s=WAIT_S, server=server_id, definitions=definitions)
        approved += done["approved"]
        for each in () if as_json else done["approved"]:
            echo(f"Approved {_name(server_id, each)}.")
    if missed := len(held) - len(approved):
        wait = "changed again meanwhile, and wait on" if missed > 1 else "changed again meanwhile, and waits on"
        raise CommandError(f"{plural(missed, 'definition')} of `{server_id}` {wait}.")
    if not held and not as_json:
        echo(f"Approved {escaped(server_id)}, which lists nothing.")
    return approved


def _forget(state_dir: Path | None, targets: tuple[str, ...], file: Path | None, *, yes: bool, as_json: bool) -> None:
    """Drop the approval of what is no longer listed."""
    if file is not None:
        raise ConfigCommandError("--gone takes no --file: it is about what servers list now.")
    every, _ = _asked(state_dir, targets, refused="Nothing was forgotten")
    servers = [one for one in every if one["gone"]]
    count = sum(len(one["gone"]) for one in servers)
    if not count and not as_json:
        note("All approved definitions are still listed.")
    elif not yes:
        for line in _gone(servers):
            echo(line)
        if not sys.stdin.isatty():
            raise ConfigCommandError("Nothing was forgotten: this is no terminal, so add --yes.")
        click.confirm(f"Forget {plural(count, 'definition')}?", abort=True)
    forgotten = {}
    for one in servers:
        done = ask_gateway(state_dir, "forget_pins", timeout_s=WAIT_S, server=one["id"], definitions=one["gone"])
        forgotten[one["id"]] = done["forgotten"]
        if not as_json:
            echo(f"Forgot {plural(done['forgotten'], 'definition')} of {escaped(one['id'])}.")
    if as_json:
        print_json({"forgotten": forgotten})


def _gone(servers: list[Any]) -> Iterator[str]:
    """Lines about approved definitions that are no longer listed."""
    for one in servers:
        for each in one["gone"]:
            name = each["name"] or f"({each['digest'][:12]})"
            yield f"{_name(one['id'], {**each, 'name': name})}: was approved, and is no longer listed"
        if more := one["goneCount"] - len(one["gone"]):
            yield f"{escaped(one['id'])}: {more} more are no longer listed"


def _batches(definitions: list[Any]) -> Iterator[list[Any]]:
    """As many at once as a request can have; one without any, if there is none."""
    batch: list[Any] = []
    size = 0
    for one in definitions:
        length = len(json.dumps(one))
        if batch and size + length > MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    yield batch


def _held(servers: list[Any]) -> Iterator[tuple[str, Any]]:
    return ((one["id"], each) for one in servers for each in one["held"])


def _name(server_id: str, one: Any) -> str:
    return f"{one['kind']} {escaped(server_id)}:{escaped(one['name'])}"


def _show(server_id: str, one: Any) -> None:
    echo(f"{_name(server_id, one)}: {_REASONS[one['reason']]}, {one['digest'][:12]}")
    for line in one.get("diff", ()):
        echo(paint(f"  {escaped(line)}", _COLOURS.get(line[:1])))
    for flag in one.get("flags", ()):
        echo(paint(f"  ! {escaped(flag)}", "yellow"))


def _advise(servers: list[Any], problem: str) -> None:
    if problem:
        note("Nothing can be approved until then.")
        return
    waiting = [one["id"] for one in servers if one["held"] or one["waits"]]
    if waiting:
        note(f"`pointsman pin approve {escaped(waiting[0])}` approves what waits of a server.")
    else:
        note("Nothing waits for approval.")
    if left := [one["id"] for one in servers if one["goneCount"]]:
        note(f"`pointsman pin approve {escaped(left[0])} --gone` accepts that definitions are no longer listed.")


def _read_file(file: Path) -> Mapping[str, Any]:
    """The servers of a file, each with its kinds, names and digests."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        document = json.loads(content) if len(content) <= MAX_FILE_BYTES else None
    except OSError as error:
        raise ConfigCommandError(f"Could not read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format") != 1 or not _is_well_formed(document.get("servers")):
        raise ConfigCommandError(f"{file} is no file of pins. `pointsman pin export FILE` writes one.")
    servers: Mapping[str, Any] = document["servers"]
    return servers


def _is_well_formed(servers: Any) -> bool:
    def has_texts(one: Any) -> bool:
        return isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("whole", "schema"))

    return isinstance(servers, dict) and all(
        isinstance(kinds, dict)
        and all(isinstance(listed, dict) and all(map(has_texts, listed.values())) for listed in kinds.values())
        for kinds in servers.values()
    )


def _only_those_in(file: Mapping[str, Any], servers: list[Any]) -> list[Any]:
    def is_in(server_id: str, one: Any) -> bool:
        pinned = file.get(server_id, {}).get(one["kind"], {}).get(one["name"])
        return pinned is not None and pinned["whole"] == one["digest"]

    return [one | {"held": [each for each in one["held"] if is_in(one["id"], each)], "waits": False} for one in servers]


def _differences(file: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    for server_id, mode in answer["modes"].items():
        listed = answer["servers"].get(server_id, {})
        if server_id not in file:
            yield f"{server_id}: is not in the file"
        elif not listed:
            yield f"{server_id}: lists nothing, or does not run"
        else:
            yield from _server_differences(
                server_id, "schema" if mode == "schema" else "whole", file[server_id], listed
            )
    for server_id in file.keys() - answer["modes"].keys():
        yield f"{server_id}: is in the file, and has no pins"


def _server_differences(server_id: str, digest: str, pinned: Any, listed: Any) -> Iterator[str]:
    for kind in sorted(pinned.keys() | listed.keys()):
        before, now = pinned.get(kind, {}), listed.get(kind, {})
        for name in sorted(before.keys() | now.keys()):
            if name not in now:
                yield f"{kind} {server_id}:{name}: is no longer listed"
            elif name not in before:
                yield f"{kind} {server_id}:{name}: new"
            elif before[name][digest] != now[name][digest]:
                yield f"{kind} {server_id}:{name}: changed"
