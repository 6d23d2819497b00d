"""Words and options for commands that concern all replicas of a gateway."""

from __future__ import annotations

from typing import Any

import click

from pointsman.core.escape import escaped
from pointsman.router.cli.common.output import echo
from pointsman.router.cli.common.owner import paint_state, plural
from pointsman.router.owner.replica_names import at_start, replica_name

here_option = click.option(
    "--here", is_flag=True, help="Of several replicas, only the one that is asked: that of --state-dir, or the first."
)


def replica_address(one: dict[str, Any]) -> str:
    """Where a replica listens: as the others reach it, or on one machine its URL."""
    its = one.get("status")
    if "worker" in one:  # all of them have one URL
        return ""
    if its is None and "folder" in one:
        return "-"
    return str(its["url"] if its is not None and one["address"].startswith("unix:") else one["address"])


def tell_differences(servers: list[dict[str, Any]]) -> None:
    """Say which servers other replicas see in another state."""
    for server in servers:
        for one in server.get("replicas", ()):
            state = paint_state(one["state"]) if one["enabled"] else "disabled"
            tools = f" with {plural(one['tools'], 'tool')}" if one["state"] == "running" and one["tools"] else ""
            reason = f": {escaped(one['reason'].rstrip('.'))}" if one["reason"] and one["enabled"] else ""
            echo(f"At {replica_name(one)}, `{server['id']}` is {state}{tools}{reason}.")


def tell_where(found: dict[str, Any]) -> None:
    """Say that another replica did what this one was asked, because it runs the server for all."""
    if (at := found.get("runsAt")) is not None:
        echo(f"{at_start(replica_name(at))} runs it for all, and restarted it.")


def tell_of_others(found: dict[str, Any], state: str) -> None:
    """Say what became of a server at the other replicas, where it should have this state."""
    for one in found.get("replicas", ()):
        name = f"At {replica_name(one)}, server `{found['id']}`"
        its = one.get("server")
        if its is None:
            echo(f"{name} is as it was: {escaped(one['problem'])}", err=True)
        elif its["state"] != state:
            echo(f"{name} is {paint_state(its['state'])}: {escaped(its['reason'].rstrip('.'))}.", err=True)
        else:
            tools = f" with {plural(its['tools'], 'tool')}" if state == "running" and its["tools"] is not None else ""
            echo(f"{name} is {paint_state(state)}{tools}.")


def well_at_others(found: dict[str, Any], state: str) -> bool:
    return all(one.get("server", {}).get("state") == state for one in found.get("replicas", ()))
