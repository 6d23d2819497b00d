"""The `_meta` of a request to a server: the client's keys without reserved ones, and what the server's era demands."""

from __future__ import annotations

from pointsman import __version__
from pointsman.core.kinds import APPS_CAPABILITY
from pointsman.core.model import Json
from pointsman.core.seams import Era
from pointsman.router.downstream.connection import Call

NAMESPACE = "io.modelcontextprotocol/"
OWN_NAMESPACE = "pointsman/"  # keys that only the gateway may set
CLIENT_INFO: Json = {"name": "pointsman", "version": __version__}
# All callers share a legacy connection, so it declares what any of them might offer;
# a caller that lacks a capability answers the server's question with an error.
LEGACY_CAPABILITIES: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
APPS_CLIENT: Json = {"extensions": APPS_CAPABILITY}
_TASKS = "tasks"  # as a capability (2025-11-25) and as an extension
_PRIVATE = frozenset({"token", "projectId", "progressToken"})
_RESERVED = (NAMESPACE, OWN_NAMESPACE)
# Put together once, because a call needs them all.
_VERSION_KEY = NAMESPACE + "protocolVersion"
_CLIENT_INFO_KEY = NAMESPACE + "clientInfo"
_CAPABILITIES_KEY = NAMESPACE + "clientCapabilities"
_LOG_LEVEL_KEY = NAMESPACE + "logLevel"
# The keys that most modern clients send. Where there are no others, none has to be looked at.
_NOT_SENT_ON = _PRIVATE | {_VERSION_KEY, _CLIENT_INFO_KEY, _CAPABILITIES_KEY, _LOG_LEVEL_KEY}


def with_meta(call: Call, era: Era, version: str, progress_token: int) -> Json:
    """The params to send for `call`. `progress_token` is the connection's own number for it.

    The gateway's own keys are in `_meta` of the call's params, never in that of the client's request.
    """
    meta: Json = {}
    params, request = call.params, call.request
    client = request.client if request is not None else None
    if request is not None and client is not None:
        given = request.params.get("_meta")
        if given and not given.keys() <= _NOT_SENT_ON:
            meta = {key: value for key, value in given.items() if key not in _PRIVATE and not key.startswith(_RESERVED)}
        if request.span is not None:
            meta.pop("tracestate", None)  # of the client, where it belongs to an invalid `traceparent`
            meta |= request.span.context
        if client.progress_token is not None:
            meta["progressToken"] = progress_token
    if era == "modern":
        capabilities = client.capabilities if client is not None else {}
        if capabilities and (_TASKS in capabilities or "extensions" in capabilities):
            capabilities = _without_tasks(capabilities)
        meta[_VERSION_KEY], meta[_CLIENT_INFO_KEY], meta[_CAPABILITIES_KEY] = version, CLIENT_INFO, capabilities
        if client is not None and client.log_level is not None:
            meta[_LOG_LEVEL_KEY] = client.log_level
    if "_meta" in params:
        meta |= params["_meta"]
    return {**params, "_meta": meta} if meta else params


def _without_tasks(capabilities: Json) -> Json:
    """A client's capabilities without tasks: a later request for a task would not reach the server through us."""
    extensions = capabilities.get("extensions")
    kept = {name: value for name, value in capabilities.items() if name != _TASKS}
    if isinstance(extensions, dict):
        kept["extensions"] = {name: value for name, value in extensions.items() if name != NAMESPACE + _TASKS}
    return kept
