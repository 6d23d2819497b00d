"""Takes a client's `mcpServers` block as it is: its entries become servers like any other."""

from __future__ import annotations

from typing import Any

from pointsman.config.document import Document, KeyPath
from pointsman.config.errors import near

BLOCK = "mcpServers"

_TRANSPORTS = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


def adopt(document: Document) -> None:
    """Move the entries of `mcpServers` to `servers`, in our words, and remember where they were written."""
    data = document.data
    if not isinstance(data, dict) or BLOCK not in data:
        return
    entries, servers = data[BLOCK] or {}, data.get("servers") or {}
    document.data = {key: value for key, value in data.items() if key != BLOCK}
    if not isinstance(entries, dict):
        document.complain((BLOCK,), "must be a mapping of keys to values")
        return
    if not isinstance(servers, dict):
        return  # the model says so
    adopted = dict(servers)
    for server_id, entry in entries.items():
        if server_id in servers:
            document.complain((BLOCK, server_id), "is a server under `servers` too; keep one of them", key=True)
            continue
        document.moved(("servers", server_id), (BLOCK, server_id))
        adopted[server_id] = _in_our_words(entry, (BLOCK, server_id), document) if isinstance(entry, dict) else entry
    document.data["servers"] = adopted


def _in_our_words(entry: dict[str, Any], path: KeyPath, document: Document) -> dict[str, Any]:
    ours = dict(entry)
    for theirs, mine in (("type", "transport"), ("disabled", "enabled")):
        if theirs in entry and mine in entry:
            document.complain((*path, theirs), f"says the same as `{mine}`; keep one of them", key=True)
            del ours[theirs]
    if "type" in ours:
        _rename_type(ours, path, document)
    if "disabled" in ours:
        _turn_disabled(ours, path, document)
    return ours


def _rename_type(ours: dict[str, Any], path: KeyPath, document: Document) -> None:
    kind = ours.pop("type")
    transport = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
    if transport is not None:
        document.moved(("servers", *path[1:], "transport"), (*path, "type"))
        ours["transport"] = transport
        return
    hint = near(kind, _TRANSPORTS) if isinstance(kind, str) and kind not in document.filled else None
    document.complain((*path, "type"), "must be `stdio`, `http`, `streamable-http` or `sse`", hint)


def _turn_disabled(ours: dict[str, Any], path: KeyPath, document: Document) -> None:
    disabled = ours.pop("disabled")
    if isinstance(disabled, bool):
        ours["enabled"] = not disabled
        return
    document.complain((*path, "disabled"), "must be true or false")
