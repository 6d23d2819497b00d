"""The tools of all servers, the switch of each, and a form to try one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.responses import Response

from pointsman.catalog.definitions import KnownTool
from pointsman.config.edits import Writer, set_server
from pointsman.config.files import Rewritten
from pointsman.config.model import ANY
from pointsman.core.escape import escaped_json
from pointsman.core.model import Json, ToolKey
from pointsman.router.audit.query import read_rounds
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.operations import OWNER, call
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.savings import schema_tokens
from pointsman.router.page.registry import Screen
from pointsman.router.page.screens.activity import seq_of
from pointsman.router.page.tool_form import MORE, draft, fields_of, pretty, read_arguments, typed_values
from pointsman.router.page.view import CLIENT, View

PER_PAGE = 50
MAX_KEY = 300  # characters of a key that a row has links and buttons for
MAX_SHOWN = 60_000  # characters of a result, of a schema
_FILTERS = ("q", "server", "show", "page")


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool, and whether `tool_permissions` allow it."""

    tool: KnownTool
    allowed: bool

    @property
    def key(self) -> str:
        return self.tool.document.tool_key

    @property
    def usable(self) -> bool:
        return len(self.key) <= MAX_KEY and self.tool.tool_name != ANY

    @property
    def tokens(self) -> int:
        return schema_tokens([self.tool.tool])

    @property
    def effect(self) -> str:
        return effect_of(self.tool)


def effect_of(tool: KnownTool) -> str:
    """What the annotations say. The protocol's default is that a tool may destroy."""
    annotations = tool.tool.get("annotations", {})
    if annotations.get("readOnlyHint") is True:
        return "reads"
    stated = {False: "changes", True: "may destroy"}
    return stated.get(annotations.get("destructiveHint"), "not stated")


async def show(view: View) -> Response:
    parts, page = view.parts, view.number("page", 1)
    server_id, shown = view.query("server"), view.query("show")
    everything = list(_listed(parts))
    found = [one for one in everything if _matches(one, view.query("q"), server_id, shown)]
    config = parts.current.config
    unlisted = [
        one for one, server in config.servers.items() if server.enabled and parts.catalog.last_list(one) is None
    ]
    return view.render(
        "tools.html",
        tools=found[(page - 1) * PER_PAGE : page * PER_PAGE],
        page=page,
        pages=-(-len(found) // PER_PAGE),
        found=len(found),
        total=len(everything),
        off=sum(not one.allowed for one in everything),
        servers=list(config.servers),
        unlisted=unlisted,
        filtered=any(view.query(name) for name in ("q", "server", "show")),
    )


def _listed(parts: Parts) -> Iterator[Listed]:
    """All tools that servers have listed, in the order of the configuration; without a wait."""
    for server_id, server in parts.current.config.servers.items():
        last = parts.catalog.last_list(server_id)
        if last is not None and server.enabled:
            permits = parts.catalog.rights.permits(OWNER, server_id)
            yield from (Listed(tool, permits(name, tool.claimed)) for name, tool in last.items.items())


def _matches(one: Listed, words: str, server_id: str, shown: str) -> bool:
    if server_id and one.tool.server_id != server_id:
        return False
    if shown and not {"off": not one.allowed, "on": one.allowed, "reads": one.effect == "reads"}.get(shown, True):
        return False
    if not words:
        return True
    document = one.tool.document
    text = f"{document.tool_key} {document.title} {document.server_name} {document.description}".lower()
    return all(word in text for word in words.lower().split())


async def switch(view: View) -> Response:
    """Allow a tool, or switch it off, in `tool_permissions` of its server."""
    key, allow = _key(view.field("key")), view.field("allow") == "yes"
    one = _require(view.parts, key)
    if not one.usable:
        raise OwnerError("unusable", "A tool of this name can only be switched in the configuration file.")
    kept = [(name, value) for name, value in parse_qsl(view.field("at")) if name in _FILTERS]
    to = "/page/tools" + (f"?{urlencode(kept)}" if kept else "")
    path = view.parts.config_path

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return set_server(path, key.server_id, {("tool_permissions", key.tool_name): allow}, environ, write)

    title = f"Allow {key}?" if allow else f"Switch {key} off?"
    effect = "" if allow else "No client can find or call it then; to them it looks as if it did not exist."
    asked = await view.change(edit, "server", title=title, to=to, text=effect)
    return asked or view.done(f"`{key}` is {'allowed' if allow else 'switched off'}.", to)


async def one(view: View) -> Response:
    """A tool and the form to try it. `row` names an audit row whose arguments are the draft."""
    key = _key(view.query("key"))
    listed = _require(view.parts, key)
    arguments, seq = None, seq_of(view.query("row"))
    if seq:
        rows = await asyncio.to_thread(read_rounds, view.parts.audit_rows, seq, view.query("request") or None)
        row = next((row for row in rows if row.seq == seq and row.tool_key == str(key)), None)
        arguments = row.arguments if row is not None and isinstance(row.arguments, dict) else None
    values = draft(listed.tool.tool.get("inputSchema"), arguments or {})
    note = "" if not seq else "from" if arguments is not None else "without"
    return _shown(view, listed, values, drafted=note)


async def try_call(view: View) -> Response:
    """Call a tool as `pointsman tools call` does. One that may change things is confirmed first."""
    key = _key(view.field("key"))
    listed = _require(view.parts, key)
    schema = listed.tool.tool.get("inputSchema")
    arguments, errors = read_arguments(schema, view.form)
    values = typed_values(view.form) | {MORE: view.form.get(MORE, [""])[0]}
    if errors:
        return _shown(view, listed, values, errors=errors, http_status=400)
    if listed.effect != "reads" and not view.confirmed:
        sent = escaped_json(json.dumps(arguments, ensure_ascii=False)).replace("`", "'")
        text = f"It is not marked as read-only, so it may change things. It gets `{sent[:2000]}`."
        back = f"/page/tools/one?{urlencode({'key': str(key)})}"
        return view.confirm(f"Call {key}?", text, button="Call it", danger=True, back=back)
    began = time.perf_counter()
    try:
        result = await call(view.parts, str(key), arguments, {}, CLIENT)
    except OwnerError as error:
        result = {"isError": True, "content": [{"type": "text", "text": str(error)}]}
    return _shown(view, listed, values, result=_result(result, (time.perf_counter() - began) * 1000))


def _shown(
    view: View,
    listed: Listed,
    values: Mapping[str, str],
    *,
    errors: Mapping[str, str] | None = None,
    result: Json | None = None,
    drafted: str = "",
    http_status: int = 200,
) -> Response:
    tool = listed.tool.tool
    return view.render(
        "tool.html",
        http_status,
        listed=listed,
        fields=fields_of(tool.get("inputSchema"), values, errors or {}),
        more=values.get(MORE, ""),
        more_error=(errors or {}).get(MORE, ""),
        result=result,
        drafted=drafted,
        schema=_clipped(pretty(tool.get("inputSchema", {}))),
    )


def _result(result: Json, ms: float) -> Json:
    """A result as it is shown: bounded, whatever the server sent."""
    blocks, room = [], MAX_SHOWN
    content = result.get("content")
    for block in content if isinstance(content, list) else []:
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            blocks.append({"kind": "text", "text": text[:room], "cut": max(len(text) - room, 0)})
            room -= min(len(text), room)
        elif len(blocks) < 50:
            kind = str(block.get("type", "unknown"))[:40] if isinstance(block, dict) else "unknown"
            blocks.append({"kind": kind, "text": "", "cut": 0})
        if room <= 0:
            break
    structured = result.get("structuredContent")
    return {
        "failed": bool(result.get("isError")),
        "asks": result.get("resultType") == "input_required",
        "blocks": blocks,
        "structured": "" if structured is None else _clipped(pretty(structured)),
        "bytes": len(msgspec.json.encode(result)),
        "ms": ms,
    }


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n… {len(text) - MAX_SHOWN:,} more characters"


def _key(text: str) -> ToolKey:
    key = ToolKey.parse(text)
    if key is None:
        raise OwnerError("unknown_tool", "A tool's key is `server:tool`.")
    return key


def _require(parts: Parts, key: ToolKey) -> Listed:
    last = parts.catalog.last_list(key.server_id) if key.server_id in parts.current.config.servers else None
    tool: Any = last.items.get(key.tool_name) if last is not None else None
    if tool is None:
        raise OwnerError("unknown_tool", f"No server has listed a tool `{str(key)[:80]}`. It may be gone or not ready.")
    return Listed(tool, parts.catalog.rights.may_use(OWNER, key.server_id, key.tool_name, tool.claimed))


async def _lists(parts: Parts, _: str) -> object:
    """The lists as they are, and what is switched off."""
    return {one: id(parts.catalog.last_list(one)) for one in parts.current.config.servers}, id(parts.current.config)


SCREEN = Screen(
    name="tools",
    title="Tools",
    icon="tools",
    path="/page/tools",
    routes=[
        ("GET", "/page/tools", show),
        ("POST", "/page/tools/switch", switch),
        ("GET", "/page/tools/one", one),
        ("POST", "/page/tools/call", try_call),
    ],
    topics={"lists": _lists},
)
