"""`pointsman grant`: which clients have access because they signed in, and the end of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pointsman.config.sections.value_types import SCOPES
from pointsman.router.cli.common.options import json_option, note, state_dir_option
from pointsman.router.cli.common.output import echo, print_json, table
from pointsman.router.cli.common.owner import ask_gateway


@click.group()
def grant() -> None:
    """List and revoke the access of clients that have signed in."""


@grant.command(name="list")
@state_dir_option
@json_option
def list_grants(state_dir: Path | None, as_json: bool) -> None:
    """Print all grants, the newest first, and what each client may use."""
    answer = ask_gateway(state_dir, "grants")
    found = answer["grants"]
    if answer["off"]:
        note(f"No grant is accepted now, and clients cannot sign in: {answer['off']}")
    elif not all(one["accepted"] for one in found):
        note("Grants of another `listen.public_url` are not accepted: their clients have to sign in again.")
    if as_json:
        print_json(found)
        return
    if not found:
        note("No client has signed in. docs/guide/sign-in-clients.md says how one does.")
    for line in _table(found) if found else ():
        echo(line)


@grant.command()
@click.argument("grant_id", metavar="ID")
@state_dir_option
@json_option
def revoke(grant_id: str, state_dir: Path | None, as_json: bool) -> None:
    """End the grant ID. Its client is refused from then on, and has to ask again."""
    answer = ask_gateway(state_dir, "revoke_grant", grant=grant_id)
    if as_json:
        print_json(answer, indent=None)
    note(f"Grant `{answer['id']}` of {answer['client'] or 'a client without a name'} is revoked.")


@grant.command(name="sign-in")
@state_dir_option
@json_option
def sign_in(state_dir: Path | None, as_json: bool) -> None:
    """Print a link that lets a browser answer requests of clients for access.

    The link works once, within 10 minutes; the browser can then answer for an hour.
    """
    made = ask_gateway(state_dir, "grant_link")
    if as_json:
        print_json(made)
        return
    echo(made["url"])
    note("Open it in the browser that shows the request, or paste it there. It works once, within 10 minutes.")


def _table(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [("ID", "CLIENT", "ANSWERED AT", "PROJECT", "SERVERS", "SCOPES", "EXPIRES", "LAST USED")]
    return table([*rows, *map(_row, found)])


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one["id"],
        one["client"] or "(no name)",
        one["answeredAt"],
        ", ".join(name or "-" for name in one["projects"]),
        ", ".join(one["servers"]),
        "all" if one["scopes"] == list(SCOPES) else ", ".join(one["scopes"]),
        (one["expires"] or "never") if one["accepted"] else "not accepted",
        one["lastUsed"] or "never",
    )
