"""What a request carries to a server in `_meta`: the caller's keys without ours, and what its era demands."""

from __future__ import annotations

from pointsman import __version__
from pointsman.core.model import Json
from pointsman.core.seams import Era
from pointsman.router.downstream.connection import Call

NAMESPACE = "io.modelcontextprotocol/"
CLIENT_INFO: Json = {"name": "pointsman", "version": __version__}
# A legacy connection is shared by all callers, so it declares what any of them might offer;
# a caller that lacks it answers the server's question with an error.
LEGACY_CAPABILITIES: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
_TASKS = "tasks"  # as a capability (2025-11-25) and as an extension
_PRIVATE = frozenset({"token", "projectId", "progressToken"})
OURS = "pointsman/"  # keys that we alone may set
_RESERVED = (NAMESPACE, OURS)


def with_envelope(call: Call, era: Era, version: str, progress_token: int) -> Json:
    """The params to send for `call`. `progress_token` is the connection's own number for it.

    What the gateway itself says to the server stands in `_meta` of the call's own params, never in the client's.
    """
    meta: Json = {}
    if call.request is not None:
        given = call.request.params.get("_meta")
        if given:
            meta = {key: value for key, value in given.items() if key not in _PRIVATE and not key.startswith(_RESERVED)}
        if call.request.client.progress_token is not None:
            meta["progressToken"] = progress_token
    if era == "modern":
        meta[NAMESPACE + "protocolVersion"] = version
        meta[NAMESPACE + "clientInfo"] = CLIENT_INFO
        meta[NAMESPACE + "clientCapabilities"] = _carried(call.request.client.capabilities) if call.request else {}
        if call.request is not None and call.request.client.log_level is not None:
            meta[NAMESPACE + "logLevel"] = call.request.client.log_level
    if "_meta" in call.params:
        meta |= call.params["_meta"]
    return {**call.params, "_meta": meta} if meta else call.params


def _carried(capabilities: Json) -> Json:
    """What a client declared, without what would not find its way back through us: a task is asked after later."""
    extensions = capabilities.get("extensions")
    if _TASKS not in capabilities and not extensions:
        return capabilities
    carried = {name: value for name, value in capabilities.items() if name != _TASKS}
    if isinstance(extensions, dict):
        carried["extensions"] = {name: value for name, value in extensions.items() if name != NAMESPACE + _TASKS}
    return carried
