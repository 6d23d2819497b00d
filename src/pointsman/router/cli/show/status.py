"""`pointsman status`: how the running gateway is, and what it saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import click

from pointsman.core.escape import escaped
from pointsman.router.cli.common.options import json_option, state_dir_option
from pointsman.router.cli.common.output import echo, paint, print_json, table
from pointsman.router.cli.common.owner import ask_gateway, paint_state, plural
from pointsman.router.cli.common.replicas import replica_address
from pointsman.router.owner.replica_names import replica_name


@click.command()
@state_dir_option
@json_option
def status(state_dir: Path | None, as_json: bool) -> None:
    """Show the running gateway: servers, calls, latency and the context tokens it saves.

    Of several replicas, the first one that answers is shown, and the state of all.
    """
    answer = ask_gateway(state_dir, "status")
    if as_json:
        print_json(answer)
        return
    for line in _lines(answer):
        echo(line)


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    ready = paint("ready", "green") if answer["ready"] else paint("not ready", "red")
    yield f"Pointsman {answer['version']} is {ready} on {answer['url']} ({_process(answer)})."
    yield f"  up             {_duration(answer.get('parentUptimeS', answer['uptimeS']))}"
    yield f"  configuration  {answer['configuration']}"
    yield f"  state          {answer['stateFolder']}"
    for problem in answer["problems"].values():
        yield f"  {paint('problem', 'red')}        {escaped(problem)}"
    yield ""
    if len(answer.get("replicas", ())) > 1 or "workers" in answer:
        yield from _replica_lines(answer["replicas"], answer.get("workers", ()))
        yield ""
    yield from server_lines(answer["servers"])
    yield ""
    yield from _call_lines(answer["calls"])
    if calls := answer.get("waiting", {}).get("calls"):
        verb = "needs" if calls == 1 else "need"
        yield f"Waiting: {plural(calls, 'call')} {verb} your yes; `pointsman approve` lists what."
    yield from _context_lines(answer["context"])


def _process(answer: dict[str, Any]) -> str:
    """The process to signal: of workers, their parent."""
    return f"process {answer['parent']}, with workers" if "parent" in answer else f"process {answer['process']}"


def _replica_lines(replicas: list[dict[str, Any]], workers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How each replica is; what follows in the output is about the first of them, which was asked.

    `workers`: as their parent sees them, also those that do not run.
    """
    asked = replica_name(replicas[0])
    kinds = f"Workers: {len(workers)}" if workers else f"Replicas: {len(replicas)}"
    yield f"{kinds}. Servers, calls and savings below are those of {asked}."
    wrong = {one["worker"]: one for one in workers if one["problem"]}
    rows = {
        one.get("worker", index): _replica_row(one, wrong.get(one.get("worker"))) for index, one in enumerate(replicas)
    }
    rows |= {number: _away_row(one) for number, one in wrong.items() if number not in rows}
    heading = (
        "WORKER" if workers else "REPLICA",
        "ID",
        "ADDRESS",
        "PROCESS",
        "STATE",
        "SERVERS",
        "CALLS",
        "ERRORS",
        "",
    )
    listed = [rows[number] for number in sorted(rows)] if workers else [*rows.values()]
    used = [any(row[column] for row in listed) for column in range(len(heading) - 1)] + [True]
    yield from (f"  {line}" for line in table([[*compress(row, used)] for row in (heading, *listed)]))


def _replica_row(one: dict[str, Any], wrong: dict[str, Any] | None) -> tuple[str, ...]:
    its = one.get("status")
    local = "folder" in one
    where = (replica_name(one) if local else one["replica"], one["replica"] if local else "", replica_address(one))
    if its is None and wrong is not None:
        return _away_row(wrong)
    if its is None:
        process = str(one.get("process") or "-")
        return (*where, process, paint("no answer", "red"), "-", "-", "-", one["problem"])
    ready = paint("ready", "green") if its["ready"] else paint("not ready", "red")
    servers, calls = its["servers"], its["calls"]
    count = f"{servers['running']} of {servers['enabled']} running"
    counts = (f"{calls['calls']:,}", f"{calls['errors']:,}")
    return (*where, str(its["process"]), ready, count, *counts, "; ".join(_missing(servers)))


def _away_row(one: dict[str, Any]) -> tuple[str, ...]:
    """A worker that does not run, or is starting."""
    colour = "yellow" if one["state"] == "starting" else "red"
    process = str(one["process"] or "-")
    return (replica_name(one), "-", "", process, paint(one["state"], colour), "-", "-", "-", one["problem"])


def _missing(servers: dict[str, Any]) -> Iterator[str]:
    for one in servers["list"]:
        if one["enabled"] and one["state"] != "running":
            yield f"`{one['id']}` is {one['state']}"


def server_lines(servers: dict[str, Any]) -> Iterator[str]:
    """Also for `pointsman server list`."""
    if not servers["list"]:
        yield "No servers yet. Add one with `pointsman server add NAME COMMAND`."
        return
    disabled = f", {servers['disabled']} disabled" if servers["disabled"] else ""
    tools = plural(servers["tools"], "tool")
    yield f"Servers: {servers['running']} of {servers['enabled']} running{disabled}, {tools}"
    rows = [("SERVER", "STATE", "TOOLS", "CALLS", "ERRORS", "")]
    for one in servers["list"]:
        shown = "disabled" if not one["enabled"] else one["state"]
        reason = one["reason"] if one["enabled"] else ""
        count = "-" if one["tools"] is None else str(one["tools"])
        rows.append((one["id"], paint_state(shown), count, str(one["calls"]), str(one["errors"]), reason))
    yield from (f"  {line}" for line in table(rows))
    if servers["running"] < servers["enabled"]:
        yield "  `pointsman doctor` explains what is missing; `pointsman server log SERVER` shows a server's own words."


def _call_lines(calls: dict[str, Any]) -> Iterator[str]:
    discoveries = plural(calls["discoveries"], "discovery", "discoveries")
    yield (
        f"Calls: {calls['calls']:,} with {plural(calls['errors'], 'error')}; {discoveries}; "
        f"{calls['refused']:,} refused since the start"
    )
    if "p50Ms" in calls:
        yield f"Latency: p50 {calls['p50Ms']:g} ms, p95 {calls['p95Ms']:g} ms, p99 {calls['p99Ms']:g} ms"


def _context_lines(context: dict[str, Any]) -> Iterator[str]:
    all_tools, own = context["allToolsTokens"], context["ownToolsTokens"]
    yield (
        f"Context: the definitions of {plural(context['tools'], 'tool')} take {all_tools:,} tokens, "
        f"Pointsman's two tools take {own:,}."
    )
    if context["conversations"]:
        saved, answers = context["savedTokens"], context["discoveryTokens"]
        amount = f"{saved:,} tokens" if saved > 0 else f"nothing yet ({saved:,} tokens)"
        conversations = plural(context["conversations"], "conversation")
        yield (
            f"Saved: {amount} in {conversations}; {answers:,} tokens of discovery answers are subtracted "
            f"(estimate: {context['basis']})."
        )
    else:
        yield f"Saved: no client has listed its tools yet (estimates are {context['basis']})."


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    shown = [f"{value} {unit}" for value, unit in parts if value][:2]
    return " ".join(shown) or "0 s"
