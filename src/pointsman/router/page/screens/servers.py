"""The servers: how each is, and what the owner can do with it. `server_entries` reads what is typed or pasted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from pointsman.config.edits import Writer, add_entries, add_server, enable_server, remove_server, set_server
from pointsman.config.files import Rewritten
from pointsman.config.secrets import mask_secrets
from pointsman.core.model import NEEDS_SIGN_IN, Json
from pointsman.core.sdk import MODERN_PROTOCOL_VERSIONS
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.operations import described_server, servers, settled_server, test_server
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.replica_names import replica_name
from pointsman.router.owner.replicas import restart_everywhere, stop_everywhere
from pointsman.router.owner.savings import schema_tokens
from pointsman.router.page.registry import Screen
from pointsman.router.page.rendering import plural
from pointsman.router.page.screens.server_entries import changed_values, oauth_choice, pasted, typed_entry
from pointsman.router.page.screens.server_pins import approve_definitions, forget_definitions, waiting_definitions
from pointsman.router.page.screens.server_sign_in import accounts_of, login, logout, revoke_account
from pointsman.router.page.view import CLIENT, View

START = "/page/servers"
LOG_LINES = 200
ON_A_PAGE = 100
_tokens: dict[str, tuple[object, int]] = {}  # by server: its last list, and the tokens of that


async def show(view: View) -> Response:
    return await _list(view)


async def show_one(view: View) -> Response:
    return await _one(view)


async def add(view: View) -> Response:
    """Add a server by its URL."""
    try:
        server_id, entry = typed_entry(view)
        asked = await view.change(
            lambda environ, write: add_server(view.parts.config_path, server_id, entry, environ, write),
            "server",
            title=f"Add the server {server_id}?",
            to=START,
        )
    except OwnerError as error:
        return await _list(view, problem=str(error), http_status=400)
    return asked or await _settled(view, server_id, "Added")


async def paste(view: View) -> Response:
    """Read a client's block: servers with a URL can be added, for programs there is the command to copy."""
    try:
        found = pasted(view)
    except OwnerError as error:
        return await _list(view, paste_problem=str(error), http_status=400)
    if view.field("step") != "add":
        return view.render("servers_pasted.html", found=found, text=view.field("text"))

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return add_entries(view.parts.config_path, "servers", found.entries, environ, write)

    count = len(found.entries)
    asked = await view.change(edit, "server", title=f"Add {count} server{'s' if count != 1 else ''}?", to=START)
    if asked is not None:
        return asked
    return view.done(f"Added {', '.join(f'`{name}`' for name in found.entries)}.", START)


async def edit(view: View) -> Response:
    server_id = view.path("id")
    try:
        values = changed_values(view, server_id)
        asked = await view.change(
            lambda environ, write: set_server(view.parts.config_path, server_id, values, environ, write),
            "server",
            title=f"Change the server {server_id}?",
            to=f"{START}/{server_id}",
        )
    except OwnerError as error:
        if error.code.startswith("unknown_"):
            raise
        return await _one(view, problem=str(error), http_status=400)
    return asked or await _settled(view, server_id, "Changed")


async def switch(view: View) -> Response:
    """Switch a server on or off in the configuration."""
    server_id, on = view.path("id"), view.field("enabled") == "yes"
    _require(view, server_id)
    asked = await view.change(
        lambda environ, write: enable_server(view.parts.config_path, server_id, on, environ, write),
        "server",
        title=f"Switch {server_id} {'on' if on else 'off'}?",
        text="" if on else "Its tools then no longer exist for any client.",
        to=f"{START}/{server_id}",
    )
    if asked is not None:
        return asked
    return await _settled(view, server_id, "Switched on") if on else _back(view, server_id, "is switched off")


async def remove(view: View) -> Response:
    server_id = view.path("id")
    _require(view, server_id)
    asked = await view.change(
        lambda environ, write: remove_server(view.parts.config_path, server_id, environ, write),
        "server",
        title=f"Remove the server {server_id}?",
        text="Its entry is deleted, with the comments inside it.",
        danger=True,
        to=f"{START}/{server_id}",
    )
    return asked or view.done(f"Removed `{server_id}`.", START)


async def restart(view: View) -> Response:
    server_id = view.path("id")
    stopped = described_server(view.parts, server_id)["state"] == "stopped"
    return _told(view, await restart_everywhere(view.parts, server_id, CLIENT), "Started" if stopped else "Restarted")


async def stop(view: View) -> Response:
    server_id = view.path("id")
    if not view.confirmed:
        _require(view, server_id)
        text = "Its tools are away until you start it again. The configuration stays as it is."
        return view.confirm(f"Stop {server_id}?", text, button="Stop", danger=True, back=f"{START}/{server_id}")
    one = await stop_everywhere(view.parts, server_id, CLIENT)
    if away := _not_at(one, "stopped"):
        return _back(view, server_id, f"is stopped, but not at {away}", "bad")
    return _back(view, server_id, "is stopped")


async def test(view: View) -> Response:
    """Try the connection now."""
    return _told(view, await test_server(view.parts, view.path("id")), "Tried")


# ------------------------------------------------------------------ helpers


async def _list(view: View, problem: str = "", paste_problem: str = "", http_status: int = 200) -> Response:
    every = (await servers(view.parts, at_once=True))["servers"]
    words, page = view.query("q").lower().split()[:8], view.number("page", 1)
    found = [one for one in every if all(word in _searched(one) for word in words)]
    listed = found[(page - 1) * ON_A_PAGE : page * ON_A_PAGE]
    tokens = await asyncio.to_thread(_all_tokens, view.parts, [one["id"] for one in listed])
    return view.render(
        "servers.html",
        http_status,
        servers=[one | {"tokens": tokens[one["id"]], "era": _era(one)} for one in listed],
        total=len(every),
        found=len(found),
        page=page,
        more=len(found) > page * ON_A_PAGE,
        projects=view.parts.current.config.projects,
        problem=problem,
        paste_problem=paste_problem,
    )


async def _one(view: View, problem: str = "", http_status: int = 200) -> Response:
    server_id = view.path("id")
    server = _require(view, server_id)
    await view.parts.catalog.watch.refresh()
    one = described_server(view.parts, server_id)
    tokens = await asyncio.to_thread(_all_tokens, view.parts, [server_id])
    log = [mask_secrets(line) for line in view.parts.logs.of(server_id).tail(LOG_LINES)]
    return view.render(
        "server.html",
        http_status,
        one=one | {"tokens": tokens[server_id]},
        entry=server,
        oauth=oauth_choice(server),
        era=_era(one),
        log=log,
        projects=view.parts.current.config.projects,
        problem=problem,
        accounts=await accounts_of(view.parts, server_id, server),
        **await waiting_definitions(view.parts, server_id),
    )


def _searched(one: Json) -> str:
    return " ".join((one["id"], one["name"], one["kind"], one["target"], one["state"], one["reason"])).lower()


def _era(one: Json) -> str:
    return "modern" if one["protocol"] in MODERN_PROTOCOL_VERSIONS else "legacy"


def _require(view: View, server_id: str) -> Any:
    described_server(view.parts, server_id)  # raises OwnerError for an unknown one
    return view.parts.current.config.servers[server_id]


async def _settled(view: View, server_id: str, done: str) -> Response:
    return _told(view, await settled_server(view.parts, server_id), done)


def _told(view: View, one: Json, done: str) -> Response:
    """Go back to the server, and say how it is."""
    server_id = one["id"]
    if not one["enabled"]:
        return _back(view, server_id, "is switched off", "warn")
    if away := _not_at(one, "running"):
        return view.done(f"{done}, but `{server_id}` does not run at {away}", f"{START}/{server_id}", "bad")
    if one["state"] == "running" and one["tools"] is not None:
        return view.done(f"{done}: `{server_id}` runs with {plural(one['tools'], 'tool')}.", f"{START}/{server_id}")
    if one["state"] == NEEDS_SIGN_IN:
        return view.done(f"{done}. Next, sign in to `{server_id}` here.", f"{START}/{server_id}", "warn")
    reason = one["reason"] or f"it is {one['state']}"
    return view.done(f"{done}, but `{server_id}` does not run: {reason}", f"{START}/{server_id}", "bad")


def _not_at(one: Json, state: str) -> str:
    """The other replicas at which a server does not have this state, with the reason of the first; "": none."""
    others = [other for other in one.get("replicas", ()) if other.get("server", {}).get("state") != state]
    if not others:
        return ""
    reason = others[0].get("problem") or others[0]["server"]["reason"] or f"it is {others[0]['server']['state']}"
    return f"{', '.join(replica_name(other) for other in others)}: {reason}"


def _back(view: View, server_id: str, what: str, kind: str = "ok") -> Response:
    return view.done(f"`{server_id}` {what}.", f"{START}/{server_id}", kind)


def _all_tokens(parts: Parts, server_ids: list[str]) -> dict[str, int | None]:
    """The tokens that the schemas of each server would take; measured once for each list."""
    counts: dict[str, int | None] = {}
    for gone in _tokens.keys() - parts.fleet.servers.keys():
        del _tokens[gone]
    for server_id in server_ids:
        listed = parts.catalog.last_list(server_id)
        if listed is None:
            counts[server_id] = None
            continue
        known = _tokens.get(server_id)
        if known is None or known[0] is not listed:
            known = (listed, schema_tokens(tool.tool for tool in listed.items.values()))
            _tokens[server_id] = known
        counts[server_id] = known[1]
    return counts


async def _log(parts: Parts, server_id: str) -> object:
    return parts.logs.of(server_id).total if server_id in parts.fleet.servers else 0


SCREEN = Screen(
    name="servers",
    title="Servers",
    icon="servers",
    path=START,
    routes=[
        ("GET", START, show),
        ("POST", f"{START}/add", add),
        ("POST", f"{START}/paste", paste),
        ("GET", f"{START}/{{id}}", show_one),
        ("POST", f"{START}/{{id}}/edit", edit),
        ("POST", f"{START}/{{id}}/switch", switch),
        ("POST", f"{START}/{{id}}/remove", remove),
        ("POST", f"{START}/{{id}}/restart", restart),
        ("POST", f"{START}/{{id}}/stop", stop),
        ("POST", f"{START}/{{id}}/test", test),
        ("POST", f"{START}/{{id}}/login", login),
        ("POST", f"{START}/{{id}}/logout", logout),
        ("POST", f"{START}/{{id}}/revoke-account", revoke_account),
        ("POST", f"{START}/{{id}}/approve", approve_definitions),
        ("POST", f"{START}/{{id}}/forget", forget_definitions),
    ],
    topics={"log": _log},
)
