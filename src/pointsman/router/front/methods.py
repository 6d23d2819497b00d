"""What clients send: the methods that the gateway handles, the shape of their parameters, the client's introduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pointsman.core.model import Json
from pointsman.core.sdk import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND, Client, ProtocolError
from pointsman.core.wire import encode

INITIAL_LOG_LEVEL: Final = "info"  # of a legacy session, until its client sets another
_LOG_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})
_LONGEST_NAME: Final = 128
_MOST_CAPABILITIES: Final = 4096  # bytes; a session stores them, and a thousand sessions must stay small


def legacy_client(params: Json) -> Client:
    """Return the client that an `initialize` introduces. Raises ProtocolError."""
    asked, capabilities, info = params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo")
    if type(asked) is not str or type(capabilities) is not dict or type(info) is not dict:
        raise invalid("`initialize` needs `protocolVersion` (a string), `capabilities` and `clientInfo` (objects).")
    if len(encode(capabilities)) > _MOST_CAPABILITIES:
        raise invalid(f"`capabilities` must not be larger than {_MOST_CAPABILITIES} bytes.")
    version = asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
    return initial_client(client_name(info), version, capabilities)


def initial_client(name: str, version: str, capabilities: Json) -> Client:
    """Return a legacy client as it is at the start of its session."""
    return Client(name, "legacy", version, capabilities, progress_token=None, log_level=INITIAL_LOG_LEVEL)


def modern_client(meta: Json) -> Client:
    """Return the client that a request's `_meta` introduces. Raises ProtocolError."""
    capabilities = meta[CLIENT_CAPABILITIES_META_KEY]
    if type(capabilities) is not dict:
        raise invalid(f"`{CLIENT_CAPABILITIES_META_KEY}` must be an object")
    level = meta.get(LOG_LEVEL_META_KEY)
    return Client(
        name=client_name(meta.get(CLIENT_INFO_META_KEY)),
        era="modern",
        version=meta[PROTOCOL_VERSION_META_KEY],
        capabilities=capabilities,
        progress_token=progress_token(meta) if "progressToken" in meta else None,
        log_level=None if level is None else log_level(level, LOG_LEVEL_META_KEY),
    )


def client_name(info: Any) -> str:
    name = info.get("name") if type(info) is dict else None
    return name[:_LONGEST_NAME] if type(name) is str else ""


def method_not_found() -> ProtocolError:
    return ProtocolError(METHOD_NOT_FOUND, "Method not found. The gateway's `capabilities` say what it supports.")


def invalid(message: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, message)


def log_level(given: object, name: str) -> str:
    """Raises ProtocolError."""
    if isinstance(given, str) and given in _LOG_LEVELS:
        return given
    raise invalid(f"`{name}` must be one of " + ", ".join(sorted(_LOG_LEVELS)))


def progress_token(meta: Json) -> str | int | None:
    """Raises ProtocolError."""
    token = meta.get("progressToken")
    if token is None or type(token) is str or type(token) is int:
        return token
    raise invalid("`_meta.progressToken` must be a string or an integer")


def _page(params: Json) -> None:
    _optional(params, "cursor", str, "a string")


def _tool_call(params: Json) -> None:
    if type(params.get("name")) is str and type(params.get("arguments")) is dict:
        return  # the common case, on the hot path
    _required(params, "name", str, "a string")
    _optional(params, "arguments", dict, "an object")


def _uri(params: Json) -> None:
    _required(params, "uri", str, "a string")


def _directory(params: Json) -> None:
    _uri(params)
    _page(params)


def _prompt(params: Json) -> None:
    _required(params, "name", str, "a string")
    _optional(params, "arguments", dict, "an object")


def _completion(params: Json) -> None:
    _required(params, "ref", dict, "an object")
    _required(params, "argument", dict, "an object")


def _required(params: Json, key: str, kind: type, words: str) -> None:
    if type(params.get(key)) is not kind:
        raise invalid(f"`{key}` must be {words}")


def _optional(params: Json, key: str, kind: type, words: str) -> None:
    if params.get(key) is not None:
        _required(params, key, kind, words)


MODERN_METHODS: Final[Mapping[str, Callable[[Json], None]]] = {
    "tools/list": _page,
    "tools/call": _tool_call,
    "resources/list": _page,
    "resources/templates/list": _page,
    "resources/read": _uri,
    "prompts/list": _page,
    "skills/list": _page,
    "skills/get": _uri,
    "resources/directory/read": _directory,
    "prompts/get": _prompt,
    "completion/complete": _completion,
}
"""Each with its check, which raises ProtocolError."""

LEGACY_METHODS: Final[Mapping[str, Callable[[Json], None]]] = {
    **MODERN_METHODS,
    "resources/subscribe": _uri,
    "resources/unsubscribe": _uri,
}
