"""`pointsman approve`: the calls that wait for a person's yes, and the owner's answers to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pointsman.core.escape import escaped
from pointsman.router.cli.common.options import ConfigCommandError, json_option, state_dir_option
from pointsman.router.cli.common.output import echo, print_json, table
from pointsman.router.cli.common.owner import ask_gateway

_DONE = {
    "once": "Yes, once",
    "always": "Yes, always, until the tool's definition or the token changes",
    "refuse": "Refused",
}


@click.command()
@click.argument("approval_id", metavar="[ID]", required=False)
@click.option(
    "--always", is_flag=True, help="Yes to all calls of this tool by this token, until its definition changes."
)
@click.option("--refuse", is_flag=True, help="No: the call is not made.")
@click.option("--withdraw", is_flag=True, help="Take back an answer, unless a call has used it: the next one is asked.")
@click.option("--show", is_flag=True, help="Answer nothing: show the call with all of its arguments, up to 64 KiB.")
@state_dir_option
@json_option
def approve(
    approval_id: str | None,
    always: bool,
    refuse: bool,
    withdraw: bool,
    show: bool,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """List the calls that wait for a person's yes, or answer the one with this ID.

    Without an option, the answer is yes, once: for the call that waits or, if its client cannot be asked, for its next
    identical call.
    """
    if always + refuse + withdraw + show > 1:
        raise ConfigCommandError("Give one of --always, --refuse, --withdraw and --show.")
    if approval_id is None:
        if always or refuse or withdraw or show:
            raise ConfigCommandError("An ID is missing. `pointsman approve` lists them.")
        _show(ask_gateway(state_dir, "approvals"), as_json)
        return
    if show:
        one = ask_gateway(state_dir, "approval", id=approval_id)
        _answered(one, "\n".join([*_call_lines(one), f"  digest     {one['digest']}"]), as_json)
        return
    if withdraw:
        taken = ask_gateway(state_dir, "withdraw_approval", id=approval_id)
        _answered(taken, f"Withdrawn ({taken['withdrawn']}): {_named(taken)} is asked again.", as_json)
        return
    answer = "always" if always else "refuse" if refuse else "once"
    answered = ask_gateway(state_dir, "answer_approval", id=approval_id, answer=answer)
    _answered(answered, f"{_DONE[answer]}: {_named(answered)}.{escaped(answered['note'])}", as_json)


def _answered(answer: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        echo(line)


def _show(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for line in _lines(answer):
        echo(line)


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    if not answer["inUse"]:
        yield "No call needs a yes: `confirm` is `never` everywhere in the configuration, which is the default."
    waiting = [one for one in answer["pending"] if one["answer"] is None]
    answered = [one for one in answer["pending"] if one["answer"] is not None]
    if not waiting:
        yield "No call waits for a yes."
    for one in waiting:
        yield from _call_lines(one)
        yield ""
    if waiting:
        yield "Answer with `pointsman approve ID`, and --always or --refuse; --show shows all arguments."
    for one in answered:
        without = ", not in effect: the tool has changed since" if one["changed"] and one["answer"] == "once" else ""
        yield f"{one['id']}  answered ({one['answer']}), {one['leftS']} s left{without}: {_named(one)}"
        yield from _arguments(one)
    if answered:
        yield "Take an answer back with `pointsman approve ID --withdraw`; --refuse turns a yes into a no."
    if answer["sessions"]:
        yield ""
        yield "Yes for a session, answered at a client (`pointsman approve ID --withdraw`):"
        rows = [("ID", "TOKEN", "CLIENT", "LEFT", "TOOL")]
        rows += [
            (one["id"], one["token"], one["client"], f"{one['leftS']} s", one["toolKey"]) for one in answer["sessions"]
        ]
        yield from (f"  {line}" for line in table(rows))
    if answer["always"]:
        yield ""
        yield "Always, until the tool's definition or the token changes (`pointsman approve ID --withdraw`):"
        rows = [("ID", "TOKEN", "BY", "IN EFFECT", "TOOL")]
        rows += [
            (one["id"], one["token"], one["by"], "yes" if one["inEffect"] else "no: changed since", one["toolKey"])
            for one in answer["always"]
        ]
        yield from (f"  {line}" for line in table(rows))


def _call_lines(one: dict[str, Any]) -> Iterator[str]:
    where = f" in project {escaped(one['project'])}" if one["project"] else ""
    how = "its client is asked" if one["asked"] else "its client cannot be asked"
    yield f"{one['id']}  {escaped(one['toolKey'])}"
    yield f"  by         {escaped(one['token'])}{where}, {escaped(one['client']) or 'a client without a name'}; {how}"
    state = f"answered   {one['answer']}," if one["answer"] else f"waits      for {one['ageS']} s,"
    yield f"  {state} {one['leftS']} s left"
    yield f"  effect     {escaped(one['effect'])}"
    if one.get("always") and one["answer"] is None:
        yield "  note       it runs when it is repeated: its token has a yes for always to this tool"
    yield from _arguments(one)


def _arguments(one: dict[str, Any]) -> Iterator[str]:
    first, *more = one["arguments"].splitlines() or [""]
    yield f"  arguments  {escaped(first)}"
    yield from (f"             {escaped(line)}" for line in more)


def _named(one: dict[str, Any]) -> str:
    return f"{escaped(one['toolKey'])} by {escaped(one['token'])}"
