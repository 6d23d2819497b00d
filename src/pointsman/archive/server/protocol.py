"""MCP as the archive speaks it, independent of the transport: which request gets which answer, in both eras.

Answers are those of the mcp SDK's server; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pointsman
from pointsman.archive.server.calls import Answer
from pointsman.archive.tools.base import ArchiveTool
from pointsman.core.model import Json
from pointsman.core.sdk import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    InboundLadderRejection,
    classify_inbound_request,
)
from pointsman.core.seams import EXAMPLE_REQUESTS, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Era, ProtocolError

CALLER = "pointsman/caller"  # the key in `_meta` for the caller, set by the gateway

_SERVER_INFO = {"name": "pointsman-archive", "title": "Pointsman archive", "version": pointsman.__version__}
_CAPABILITIES = {"tools": {"listChanged": False}}
_LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_METHODS: Mapping[Era, Collection[str]] = {
    "legacy": ("initialize", "ping", "tools/list", "tools/call"),
    "modern": ("server/discover", "tools/list", "tools/call"),
}
_SHOWN_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A valid request for a tool that exists. It runs elsewhere; `Session.result_of` shapes its answer."""

    name: str
    arguments: Json
    caller: str  # empty if the gateway did not start us


class Session:
    """One client. Its first request decides the era: modern if it carries the envelope of 2026-07-28, else legacy."""

    def __init__(self, tools: Sequence[ArchiveTool]) -> None:
        self._tools = {tool.name: _as_mcp_tool(tool) for tool in tools}
        self._era: Era | None = None
        self._initialized = False

    def answer(self, method: str, params: Json | None) -> Json | ToolCall:
        """Raises ProtocolError."""
        given = params or {}
        enveloped = method != "initialize" and _has_envelope(given)
        if self._era is None:
            self._era = "modern" if enveloped else "legacy"
        if self._era == "modern":
            self._check_modern(method, params)
        elif enveloped:
            raise ProtocolError(
                INVALID_REQUEST,
                "this connection serves the handshake protocol era; "
                "requests carrying the 2026-07-28 envelope are not accepted on it",
            )
        if method not in _METHODS[self._era]:
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", method)
        _check_meta(given.get("_meta", {}), self._era)
        match method:
            case "initialize":
                return self._initialize(given)
            case "server/discover":
                return self._stamped({**_LISTED, "supportedVersions": [*MODERN_PROTOCOL_VERSIONS], **_CAPABLE})
            case "ping":
                return {}
        if self._era == "legacy" and not self._initialized:
            raise _invalid_params()
        return self._list(given) if method == "tools/list" else self._call(given)

    def notify(self, method: str) -> None:
        if method == "notifications/initialized":
            self._initialized = True

    def result_of(self, answer: Answer) -> Json:
        return self._stamped(
            {
                "content": [{"type": "text", "text": answer.text}],
                "structuredContent": answer.structured,
                "isError": answer.failed,
            }
        )

    def _check_modern(self, method: str, params: Json | None) -> None:
        if method == "initialize":
            requested = (params or {}).get("protocolVersion")
            named = {"requested": requested} if isinstance(requested, str) else {}
            raise ProtocolError(
                UNSUPPORTED_PROTOCOL_VERSION,
                "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted",
                {"supported": [*MODERN_PROTOCOL_VERSIONS], **named},
            )
        found = classify_inbound_request({"method": method, "params": params})
        if isinstance(found, InboundLadderRejection):
            raise ProtocolError(found.code, found.message, found.data)

    def _initialize(self, params: Json) -> Json:
        version = params.get("protocolVersion")
        if not isinstance(version, str) or not isinstance(params.get("capabilities"), dict):
            raise _invalid_params()
        _check_client_info(params.get("clientInfo"))
        self._initialized = True
        known = version in HANDSHAKE_PROTOCOL_VERSIONS
        return {
            "protocolVersion": version if known else LATEST_HANDSHAKE_VERSION,
            **_CAPABLE,
            "serverInfo": _SERVER_INFO,
        }

    def _list(self, params: Json) -> Json:
        if not isinstance(params.get("cursor"), str | None):
            raise _invalid_params()
        listed = {"tools": [*self._tools.values()]}
        return self._stamped({**listed, **_LISTED} if self._era == "modern" else listed)

    def _call(self, params: Json) -> ToolCall:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            raise _invalid_params()
        if name not in self._tools:
            shown = name[:_SHOWN_NAME_CHARS]
            message = f"Unknown tool: {shown}. The archive has {', '.join(self._tools)}."
            raise ProtocolError(INVALID_PARAMS, message, {"tool": shown})
        caller = params.get("_meta", {}).get(CALLER)
        return ToolCall(name, arguments or {}, caller if isinstance(caller, str) else "")

    def _stamped(self, result: Json) -> Json:
        """With what the modern era requires in each result."""
        if self._era != "modern":
            return result
        return {**result, "resultType": "complete", "_meta": {SERVER_INFO_META_KEY: _SERVER_INFO}}


_CAPABLE: Json = {"capabilities": _CAPABILITIES}
_LISTED: Json = {"ttlMs": 0, "cacheScope": "private"}  # of modern results that a client may cache


def _has_envelope(params: Json) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


def _check_meta(meta: Any, era: Era) -> None:
    """Raises ProtocolError."""
    if not isinstance(meta, dict) or not _is_token(meta.get("progressToken")):
        raise _invalid_params()
    if era == "legacy":
        return
    if not isinstance(meta.get(CLIENT_CAPABILITIES_META_KEY), dict):
        raise _invalid_params()
    if meta.get(CLIENT_INFO_META_KEY) is not None:
        _check_client_info(meta[CLIENT_INFO_META_KEY])
    if meta.get(LOG_LEVEL_META_KEY) not in (None, *_LOG_LEVELS):
        raise _invalid_params()


def _check_client_info(info: Any) -> None:
    """Raises ProtocolError."""
    if not isinstance(info, dict) or not all(isinstance(info.get(key), str) for key in ("name", "version")):
        raise _invalid_params()


def _is_token(token: Any) -> bool:
    return token is None or isinstance(token, str) or (isinstance(token, int) and not isinstance(token, bool))


def _invalid_params() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "Invalid request parameters", "")


def _as_mcp_tool(tool: ArchiveTool) -> Json:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {
            "title": tool.title,
            "readOnlyHint": tool.read_only,
            "destructiveHint": False,
            "idempotentHint": tool.idempotent,
            "openWorldHint": False,
        },
        **({"_meta": {EXAMPLE_REQUESTS: tool.example_requests}} if tool.example_requests else {}),
    }
