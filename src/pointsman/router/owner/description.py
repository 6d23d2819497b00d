"""Describes servers and projects of the configuration, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pointsman.catalog.rights import RightsIndex
from pointsman.catalog.scan.scan import Flag
from pointsman.config.model import GatewayConfig, Project
from pointsman.config.sections.server import Server
from pointsman.core.model import Caller, Json
from pointsman.providers.visible import visible_line
from pointsman.router.downstream.stdio.launch import argument_path

MAX_SHOWN_FLAGS = 50  # of one server
MAX_SHOWN_CHARS = 80  # of a tool's name
OFF = "off"  # `optimization: null`
_ARGUMENT = re.compile(r"argument (\d{1,5}) of `args`(?:: add that path to `sandbox\.read`)?")
_SANDBOX_PATH = re.compile(r"path (\d{1,3}) of `sandbox\.(read|write)`")
MAX_NAMED = 20  # servers in one sentence


def empty_variables(names: Sequence[str], *, trial: bool = False) -> str:
    """What to do about variables that a server's entry refers to and that have no value; empty without any.

    In a trial without a gateway, those of the shell count.
    """
    if not names:
        return ""
    verb, they = ("is", "it") if len(names) == 1 else ("are", "them")
    said = f"Its entry refers to {', '.join(names)}, which {verb} not set in"
    if trial:
        return f"{said} this shell."
    return f"{said} the gateway's environment. Set {they} where the gateway is started, and restart the gateway."


def silent_step(one: Mapping[str, Any]) -> str:
    """What to do about a server, as the owner's channel describes it, that does not answer."""
    if one["kind"] in ("http", "sse"):
        return "Restart it where it runs; the gateway uses it again as soon as it answers"
    return f"`pointsman server restart {one['id']}` starts it again"


def kind_of(server: Server) -> str:
    if server.bundled is not None:
        return "bundled"
    return "stdio" if server.url is None else server.transport or "http"


def target_of(server: Server) -> str:
    """The program or the host: not arguments, and not the path or query of a URL."""
    if server.bundled is not None:
        return server.bundled
    if server.command is not None:
        return Path(server.command).name
    return urlsplit(server.url or "").hostname or ""


def with_path(reason: str, server: Server | None) -> str:
    """Why a program cannot be started, with all paths: a model sees only its name, the owner sees both."""
    if server is None or server.command is None:
        return reason
    named = f"`{Path(server.command).name}` cannot be started"
    if reason.startswith(named):
        reason = reason.replace(named, f"`{server.command}` cannot be started", 1)
    return with_sandbox_paths(reason, server)


def with_sandbox_paths(reason: str, server: Server) -> str:
    """What a sandbox refuses or does not show, with the paths that are meant, as they were resolved."""
    sandbox = server.sandbox
    if sandbox is None:
        return reason
    paths = {"read": sandbox.read, "write": sandbox.write}

    def path(found: re.Match[str]) -> str:
        number, key = int(found[1]), found[2]
        return f"`{paths[key][number - 1]}` of `sandbox.{key}`" if number <= len(paths[key]) else found[0]

    def argument(found: re.Match[str]) -> str:
        number = int(found[1])
        meant = argument_path(server.args[number - 1], server.cwd) if 0 < number <= len(server.args) else None
        if meant is None:
            return found[0]
        line = ", ".join(map(str, (*paths["read"], meant)))
        return f"`{meant}` of `args`" + (f": write `sandbox: {{read: [{line}]}}`" if "add" in found[0] else "")

    return _ARGUMENT.sub(argument, _SANDBOX_PATH.sub(path, reason))


def describe_flags(flags: Sequence[Flag]) -> list[Json]:
    """Definitions of a server that a person should read."""
    return [
        {"kind": flag.kind, "tool": flag.tool, "rule": flag.rule, "text": f"{_named(flag)} {flag.text}"}
        for flag in flags[:MAX_SHOWN_FLAGS]
    ]


def _named(flag: Flag) -> str:
    name = f"`{visible_line(flag.tool, MAX_SHOWN_CHARS)}`"
    return name if flag.kind == "tool" else f"{flag.kind} {name}"


def unseen_servers(config: GatewayConfig, token_id: str) -> list[str]:
    """The servers that a token may use and none of whose tools it sees, because their annotations are not trusted."""
    token = config.tokens.get(token_id)
    if token is None or "destructive" in token.scopes:
        return []
    rights = RightsIndex(config)
    callers = [Caller(token_id, project_id) for project_id in (None, *config.projects)]
    usable = {server_id for caller in callers for server_id in rights.usable_servers(caller)}
    return [one for one, server in config.servers.items() if one in usable and not server.trusts_annotations]


def unseen_text(token_id: str, server_ids: Sequence[str]) -> str:
    """What the operator can do about `unseen_servers`."""
    return unseen_by(f"Token `{token_id}` sees", server_ids)


def unseen_by(who_sees: str, server_ids: Sequence[str]) -> str:
    """The same sentence for whoever has such rights, as `Token NAME sees`."""
    named = ", ".join(f"`{one}`" for one in server_ids[:MAX_NAMED])
    more = f" and {len(server_ids) - MAX_NAMED} more" if len(server_ids) > MAX_NAMED else ""
    return (
        f"{who_sees} no tools of {named}{more}: nobody vouches for what these servers say about their "
        "tools, so all of them count as destructive. Where you trust a server, set `trust_annotations: true` for it."
    )


def describe_project(config: GatewayConfig, project_id: str) -> Json:
    """A project as the commands and the page show it; the empty id stands for callers that name no project."""
    one = config.projects[project_id] if project_id else config.unassigned
    return {
        "id": project_id,
        "name": one.name if isinstance(one, Project) else None,
        "optimization": one.optimization or OFF,
        "exposure": one.exposure,
        "tools": None if one.tools is None else list(one.tools),
        "servers": [
            server_id
            for server_id, server in config.servers.items()
            if (project_id in server.projects if project_id else not server.projects)
        ],
    }
