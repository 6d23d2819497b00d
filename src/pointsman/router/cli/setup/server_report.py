"""What `pointsman server` says of one server: what became of it, and what to do if it does not run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pointsman.core.escape import escaped
from pointsman.core.model import NEEDS_SIGN_IN
from pointsman.router.cli.common.options import note
from pointsman.router.cli.common.output import echo, paint, print_json
from pointsman.router.cli.common.owner import paint_state, plural

if TYPE_CHECKING:
    from pointsman.router.cli.common.edited import Edited


def tell(edited: Edited, done: str, server_id: str, as_json: bool, *, signs_in: bool = False) -> None:
    """`signs_in`: it was added with `--oauth`, so that it needs a sign-in is as it should be."""
    done = f"{done} {edited.path}"
    found = edited.server(server_id, done)
    if as_json:
        print_json({"configuration": str(edited.path), "gateway": edited.running, "server": found})
    else:
        echo(f"{done}.")
        edited.note_pending()
    if signs_in and (found is None or found["state"] == NEEDS_SIGN_IN):
        note(f"Next, sign in to it: `pointsman server login {server_id}`.")
    elif found is not None:
        show(found, as_json, printed=as_json)


def show(found: dict[str, Any], as_json: bool, *, printed: bool = False) -> None:
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
        if found.get("unread"):
            note("Its tools are offered when the pins can be read: it is not known what was approved.")
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
    word = "does not run" if found["state"] in ("failed", NEEDS_SIGN_IN) else f"is {found['state']}"
    echo(f"Server `{server_id}` {paint(word, 'red')}: {escaped(reason.rstrip('.'))}.", err=True)
    from pointsman.router.downstream.stdio.launch import lasts
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
    elif found["state"] == NEEDS_SIGN_IN:
        return
    elif found["state"] == "starting":
        note("It is still starting; `pointsman server list` shows when it runs.")
    elif lasts(reason):
        note("Change its entry in the configuration, or what the reason names: it is not started before that.")
    elif words:
        note(f"The gateway tries it again. `pointsman server log {server_id}` shows more of what it wrote.")
    elif found["kind"] in ("http", "sse") and "`headers`" not in reason:
        note("The gateway tries it again. Check its URL and headers in the configuration.")
    else:
        note("The gateway tries it again.")
