"""Entries of servers as they are typed or pasted: only URLs, only literals; a program becomes a command to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pointsman.config.errors import closest
from pointsman.config.pasted import mended_id
from pointsman.config.sections.server import OAuth, Server
from pointsman.config.yaml.text_edits import Value
from pointsman.router.clients.client_file import ClientFileError
from pointsman.router.clients.found_servers import Found, LeftOut, leads_here, of_text
from pointsman.router.clients.import_plan import free_id
from pointsman.router.owner.changes import require_literal
from pointsman.router.owner.channel import OwnerError
from pointsman.router.page.view import View

ERAS = ("auto", "legacy", "modern")
TRANSPORTS = ("http", "sse")
AUTO, NONE, OWN = "auto", "none", "own"  # `oauth`: everything is discovered, there is none, or it has keys of its own
_KEPT = ("name", "url", "transport", "headers", "enabled", "tool_permissions")  # of a pasted entry with a URL


@dataclass(slots=True)
class Pasted:
    """What a pasted block holds."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)  # by the id that each gets
    commands: list[tuple[str, str]] = field(default_factory=list)  # name, and the line to copy
    left_out: list[LeftOut] = field(default_factory=list)


def typed_entry(view: View) -> tuple[str, dict[str, Any]]:
    """The id and the entry of the form for a new server. Raises OwnerError."""
    name, url = view.field("name"), view.field("url")
    server_id = mended_id(name)
    if not server_id:
        raise OwnerError("invalid_name", "Give the server a name, such as `tracker`.")
    if not url.startswith(("http://", "https://")):
        raise OwnerError("invalid_url", "The URL of a server starts with http:// or https://.")
    entry: dict[str, Any] = {"name": name} if name != server_id else {}
    entry["url"] = url
    if view.field("transport") == "sse":
        entry["transport"] = "sse"
    if view.field("oauth") == AUTO:
        entry["oauth"] = AUTO
    headers = _headers(view.field("headers"))
    if headers:
        entry["headers"] = headers
    projects = _projects(view)
    if projects:
        entry["projects"] = projects
    _check(view, entry)
    return server_id, entry


def changed_values(view: View, server_id: str) -> dict[tuple[str, ...], Value]:
    """The values of the form that differ from the entry. Raises OwnerError."""
    server = view.parts.current.config.servers.get(server_id)
    if server is None:
        raise OwnerError("unknown_server", f"There is no server `{server_id[:64]}`.")
    values: dict[tuple[str, ...], Value] = {}
    name = view.field("title")
    if name != (server.name or ""):
        values["name",] = name or None
    projects = _projects(view)
    if projects != list(server.projects):
        values["projects",] = projects
    if server.url is not None:
        values |= _connection_values(view, server.url, server.transport or "http", server.era, bool(server.headers))
        chosen, present = view.field("oauth"), oauth_choice(server)
        if chosen in (AUTO, NONE) and chosen != present:
            values["oauth",] = AUTO if chosen == AUTO else None
    if not values:
        raise OwnerError("unchanged", "Nothing was changed in the form.")
    _check(view, {keys[0]: value for keys, value in values.items()})
    return values


def oauth_choice(server: Server) -> str:
    """How a server is signed in to, as the form has it."""
    if server.oauth is None:
        return NONE
    return AUTO if server.oauth == OAuth() else OWN


def pasted(view: View) -> Pasted:
    """Raises OwnerError."""
    text = view.field("text")
    if not text:
        raise OwnerError("empty", "Paste the block of a client, such as its `mcpServers`.")
    try:
        findings = of_text(text, "the pasted text", {})
    except ClientFileError as error:
        raise OwnerError("unreadable", str(error)) from None
    found, taken = Pasted(left_out=findings.left_out), {*view.parts.current.config.servers}
    for one in findings.servers:
        if "url" not in one.server:
            found.commands.append((one.name, _command(one)))
            continue
        entry = {key: one.server[key] for key in _KEPT if one.server.get(key) not in (None, {}, "")}
        try:
            _check(view, entry)
        except OwnerError as error:
            found.left_out.append(LeftOut(one.source, one.name, str(error)))
            continue
        server_id = free_id(one.name, taken)
        taken.add(server_id)
        found.entries[server_id] = {**({"name": one.name} if server_id != one.name else {}), **entry}
    return found


def _connection_values(
    view: View, url: str, transport: str, era: str, has_headers: bool
) -> dict[tuple[str, ...], Value]:
    values: dict[tuple[str, ...], Value] = {}
    typed = view.field("url")
    if typed and typed != url:
        if has_headers:
            raise OwnerError(
                "headers",
                "The URL of a server with headers cannot be changed here: they would go to the new address. "
                "Change it in the configuration file, or remove the server and add it again.",
            )
        if not typed.startswith(("http://", "https://")):
            raise OwnerError("invalid_url", "The URL of a server starts with http:// or https://.")
        values["url",] = typed
    if (chosen := view.field("transport", transport)) != transport and chosen in TRANSPORTS:
        values["transport",] = chosen
    if (chosen := view.field("era", era)) != era and chosen in ERAS:
        values["era",] = chosen
    return values


def _check(view: View, entry: Mapping[str, Any]) -> None:
    require_literal(entry)
    own = (view.parts.url, view.client_url)
    if entry.get("url") and leads_here(entry, own):
        raise OwnerError("own_gateway", f"That is this gateway itself ({own[0]}), which cannot be its own server.")


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise OwnerError("invalid_header", "Write one header a line, as in `Authorization: Bearer SECRET`.")
        if name.strip().lower() in map(str.lower, headers):
            raise OwnerError("invalid_header", f"The header `{name.strip()[:64]}` is there twice; write it once.")
        headers[name.strip()] = value.strip()
    return headers


def _projects(view: View) -> list[str]:
    chosen, known = view.fields("projects"), view.parts.current.config.projects
    for name in chosen:
        if name not in known:
            near = closest(name[:64], known)
            hint = f" Did you mean `{near}`?" if near else ""
            raise OwnerError("unknown_project", f"There is no project `{name[:64]}`.{hint}")
    return chosen


def _command(one: Found) -> str:
    """The line that adds a program in a terminal; the page itself never does."""
    server = one.server
    words = ["pointsman", "server", "add", mended_id(one.name) or "server"]
    for name, value in (server.get("env") or {}).items():
        words += ["--env", f"{name}={value}"]
    if server.get("cwd"):
        words += ["--cwd", str(server["cwd"])]
    return shlex.join([*words, str(server.get("command", "")), *map(str, server.get("args", ()))])
