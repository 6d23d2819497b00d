"""Results: the shapes in which tools answer, and the links to resources in their content.

In a large result, `content` and `structuredContent` are not decoded but `Raw`: an array and an object, checked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec
from msgspec import Raw

from pointsman.catalog.apps import META_KEYS, with_app_uris
from pointsman.catalog.names import is_app_uri, wrap_uri
from pointsman.core import wire
from pointsman.core.errors import GatewayError, RateLimitedError, View
from pointsman.core.model import Caller, Json

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
DATA_KEY = "pointsman/dataFrom"  # in `_meta` of a tool's result: the content is data of that server, not instructions
MOST_LINKS = 10_000  # of all callers; the least recently used are evicted
MAX_URI_CHARS = 8_192
_LINK_TYPES = ("resource_link", "resource")
_DECODED_BYTES = 32 * 1024  # larger members of an undecoded block stay undecoded
_OPEN_LEVELS = 1  # of large members: an embedded resource has its URI there, and each level is one more pass

_EMPTY = Raw(b"")
_Any = dict[str, Raw] | list[Raw] | str | int | float | bool | None


class _Block(msgspec.Struct):
    """Of a content block only its type; the rest is skipped."""

    type: _Any = None


_types = msgspec.json.Decoder(list[_Block | list[Raw] | str | int | float | bool | None])
_blocks = msgspec.json.Decoder(list[_Any])
_members = msgspec.json.Decoder(dict[str, Raw])


def structured(content: Json) -> Json:
    """Return a result with the same content for programs and, as text, for clients that read only text."""
    return {"content": [{"type": "text", "text": wire.encode(content).decode()}], "structuredContent": content}


def failure(error: GatewayError, view: View) -> Json:
    """Return an error as a tool's result, so that the model can act on it."""
    message = error.text(view)
    shown: Json = {"code": error.code, "message": message}
    if isinstance(error, RateLimitedError):
        shown["retryAfterS"] = error.retry_after_s
    return {"content": [{"type": "text", "text": message}], "structuredContent": {"error": shown}, "isError": True}


def size_undecoded(result: Json) -> int:
    """The encoded size of a result, without a copy of what is not decoded."""
    raw_bytes = sum(len(memoryview(value)) for value in result.values() if type(value) is Raw)
    return raw_bytes + len(wire.encode({key: _EMPTY if type(value) is Raw else value for key, value in result.items()}))


def as_execute_result(result: Json) -> Json:
    """Return a tool's result as `tool_execute` answers it: unchanged, with structured content under `result`."""
    if "structuredContent" in result:
        return {**result, "structuredContent": {"result": result["structuredContent"]}}
    return result


def marked_as_data(result: Json, server_id: str) -> Json:
    """Return a tool's result as the gateway's own, with the server that its content is from.

    The content itself is not changed.
    """
    meta, marked = result.get("_meta"), {DATA_KEY: server_id}
    if isinstance(meta, dict):
        marked = {**meta, **marked}
        marked.pop(SERVER_INFO_KEY, None)
    return {**result, "_meta": marked}


def as_own_result(result: Json) -> Json:
    """Return a server's result as the gateway's own: without the server's description of itself."""
    meta = result.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO_KEY in meta:
        result = {**result, "_meta": {key: value for key, value in meta.items() if key != SERVER_INFO_KEY}}
    return result


class ResourceLinks:
    """Remembers which server sent a caller a link to a resource, so that the caller can follow it.

    Content passes unchanged, so the URIs in it are the server's own, and two servers may use the same one. Only links
    to the pages of apps are changed: they name their server, so nothing has to be remembered.
    """

    def __init__(self) -> None:
        self._servers: OrderedDict[tuple[Caller, str], str] = OrderedDict()

    def shown(self, caller: Caller, server_id: str, result: Json) -> Json:
        """Return a tool's result as clients see it, and remember the links in it."""
        content, meta = result.get("content"), result.get("_meta")
        if type(content) is Raw:
            content = _blocks_with_links(content)
        if isinstance(content, list):
            for block in content:
                if isinstance(block, dict) and block.get("type") in _LINK_TYPES:
                    result = {**result, "content": self.follow(caller, server_id, content)}
                    break
        if isinstance(meta, dict) and not META_KEYS.isdisjoint(meta):
            result = {**result, "_meta": with_app_uris(server_id, meta)}
        return result

    def follow(self, caller: Caller, server_id: str, blocks: list[Any]) -> list[Any]:
        """Return content blocks, which may have any shape, as clients see them, and remember the links in them."""
        return [self._follow(caller, server_id, block) if isinstance(block, dict) else block for block in blocks]

    def server_of(self, caller: Caller, uri: str) -> str | None:
        """Return the server that last sent this caller this URI."""
        key = (caller, uri)
        if key not in self._servers:
            return None
        self._servers.move_to_end(key)
        return self._servers[key]

    def _follow(self, caller: Caller, server_id: str, block: Json) -> Json:
        if block.get("type") not in _LINK_TYPES:
            return block
        embedded = block.get("resource")
        uri = embedded.get("uri") if isinstance(embedded, dict) else block.get("uri")
        if not isinstance(uri, str):
            return block
        if is_app_uri(uri):
            named = {"uri": wrap_uri(server_id, uri)}
            return {**block, "resource": {**embedded, **named}} if isinstance(embedded, dict) else {**block, **named}
        if len(uri) <= MAX_URI_CHARS:
            self._add(caller, server_id, uri)
        return block

    def _add(self, caller: Caller, server_id: str, uri: str) -> None:
        self._servers[caller, uri] = server_id
        self._servers.move_to_end((caller, uri))
        if len(self._servers) > MOST_LINKS:
            self._servers.popitem(last=False)


def open_blocks(content: Raw) -> list[Any]:
    """Decode undecoded content, but for large members of its blocks. Raises InvalidJsonError: a number out of range."""
    return [_open_members(block, _OPEN_LEVELS) for block in wire.decode(memoryview(content), _blocks)]


def _blocks_with_links(content: Raw) -> list[Any] | None:
    """Decode undecoded content far enough to follow the links in it. None: there are none, or it is not understood."""
    try:
        if not any(isinstance(block, _Block) and block.type in _LINK_TYPES for block in _types.decode(content)):
            return None
        return open_blocks(content)
    except (msgspec.DecodeError, RecursionError, wire.InvalidJsonError):  # too deep, or a number out of range
        return None


def _open(value: Raw, levels: int) -> Any:
    """Decode a value; if it is large, only the small members of an object, that many levels down."""
    text = memoryview(value)
    if len(text) <= _DECODED_BYTES:
        return wire.decode(text)
    return _open_members(wire.decode(text, _members), levels - 1) if levels and text[0] == ord("{") else value


def _open_members(value: Any, levels: int) -> Any:
    if isinstance(value, dict):
        return {name: _open(member, levels) for name, member in value.items()}
    return [_open(member, levels) for member in value] if isinstance(value, list) else value
