"""How a client introduces itself: in `initialize` in the legacy era, in each request's `_meta` in the modern one."""

from __future__ import annotations

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
from pointsman.core.seams import Client
from pointsman.core.wire import encode
from pointsman.router.front.legacy.session_ids import introduced_before
from pointsman.router.front.methods import invalid, log_level, progress_token

_LONGEST_NAME: Final = 128
_MOST_CAPABILITIES: Final = 4096  # bytes; a session keeps them, and a thousand sessions must stay small


def legacy_client(params: Json) -> Client:
    """The client as its `initialize` describes it. Raises ProtocolError."""
    asked, capabilities, info = params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo")
    if type(asked) is not str or type(capabilities) is not dict or type(info) is not dict:
        raise invalid("`initialize` needs `protocolVersion` (a string), `capabilities` and `clientInfo` (objects).")
    if len(encode(capabilities)) > _MOST_CAPABILITIES:
        raise invalid("`capabilities` is too large.")
    version = asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
    return introduced_before(client_name(info), version, capabilities)


def modern_client(meta: Json) -> Client:
    """The client as a request's envelope describes it. Raises ProtocolError."""
    capabilities = meta[CLIENT_CAPABILITIES_META_KEY]
    if type(capabilities) is not dict:
        raise invalid(f"`{CLIENT_CAPABILITIES_META_KEY}` must be an object")
    level = meta.get(LOG_LEVEL_META_KEY)
    return Client(
        name=client_name(meta.get(CLIENT_INFO_META_KEY)),
        era="modern",
        version=meta[PROTOCOL_VERSION_META_KEY],
        capabilities=capabilities,
        progress_token=progress_token(meta),
        log_level=None if level is None else log_level(level, LOG_LEVEL_META_KEY),
    )


def client_name(info: Any) -> str:
    name = info.get("name") if type(info) is dict else None
    return name[:_LONGEST_NAME] if type(name) is str else ""
