"""The methods that are carried to the gateway, and the shape of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pointsman.core.model import Json
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND, ProtocolError

_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


def method_not_found() -> ProtocolError:
    return ProtocolError(METHOD_NOT_FOUND, "Method not found")


def invalid(message: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, message)


def log_level(given: object, name: str) -> str:
    """Raises ProtocolError."""
    if isinstance(given, str) and given in _LEVELS:
        return given
    raise invalid(f"`{name}` must be one of " + ", ".join(sorted(_LEVELS)))


def progress_token(meta: Json | None) -> str | int | None:
    """Raises ProtocolError."""
    token = meta.get("progressToken") if meta else None
    if token is None or type(token) is str or type(token) is int:
        return token
    raise invalid("`_meta.progressToken` must be a string or an integer")


def _page(params: Json) -> None:
    _optional(params, "cursor", str, "a string")


def _tool_call(params: Json) -> None:
    if type(params.get("name")) is str and type(params.get("arguments")) is dict:
        return  # nearly always, and this is the path that must be short
    _required(params, "name", str, "a string")
    _optional(params, "arguments", dict, "an object")


def _uri(params: Json) -> None:
    _required(params, "uri", str, "a string")


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
    "prompts/get": _prompt,
    "completion/complete": _completion,
}
"""Each with its check, which raises ProtocolError."""

LEGACY_METHODS: Final[Mapping[str, Callable[[Json], None]]] = {
    **MODERN_METHODS,
    "resources/subscribe": _uri,
    "resources/unsubscribe": _uri,
}
