"""The modern era, 2026-07-28: each POST is independent, identifies itself in `_meta`, and ends with its connection."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pointsman.core.model import Caller, Json
from pointsman.core.sdk import (
    CLIENT_CAPABILITIES_META_KEY,
    ERROR_CODE_HTTP_STATUS,
    INPUT_REQUIRED_METHODS,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from pointsman.core.seams import CONFIRMATION, COUNTED_ROUND, FrontRequest
from pointsman.router.front.exchange import EraRules, Exchange
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.http_request import HttpRequest
from pointsman.router.front.http.responses import HttpError
from pointsman.router.front.methods import MODERN_METHODS, method_not_found, modern_client
from pointsman.router.front.modern.listen import Listeners
from pointsman.router.front.modern.parked_calls import ParkedCalls
from pointsman.router.front.state import FrontState

_RULES = EraRules(disconnect_cancels=True, error_status=ERROR_CODE_HTTP_STATUS)
_PARAM_PREFIX: Final = b"mcp-param-"
_MOST_ACCEPTED: Final = 1024  # of callers' names, so there must be a bound
_LONGEST_NAME: Final = 128
_SEALED: Final = {CONFIRMATION: "confirmation", COUNTED_ROUND: "counted_round"}  # keys of a result of ours
_Routed = tuple[str, str, bytes | None, bytes | None, bytes | None]
_ROUTING_HEADERS: Final = {name.encode(): name for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}
# How long a client may cache a result for which the gateway sets no time itself. Lists depend on the caller's
# rights, which may change at any moment; the server's description and the two tools rarely change.
_TTL_MS: Final = {
    "server/discover": 60_000,
    "tools/list": 60_000,
    "resources/list": 0,
    "resources/templates/list": 0,
    "prompts/list": 0,
    "resources/read": 0,
    "skills/list": 0,
    "skills/get": 0,
}


class ModernEndpoint:
    """POST of `/mcp` with a modern protocol version."""

    def __init__(self, state: FrontState, parked: ParkedCalls, listeners: Listeners) -> None:
        self._state = state
        self._parked = parked
        self._listeners = listeners
        self._meta = parked.meta
        self._accepted: set[_Routed] = set()  # what the SDK's check has accepted, because it takes a microsecond

    async def post(self, http: HttpRequest, message: Json, caller: Caller) -> None:
        """Raises HttpError 400."""
        head = http.head
        if "method" not in message:
            raise HttpError(400, "The body must be a JSON-RPC request or notification: a modern client is never asked.")
        if "id" not in message:
            rejection = unsupported_protocol_version_rejection(head[b"mcp-protocol-version"].decode("latin-1"))
            if rejection is not None:
                raise _rejected(rejection)
            await http.respond(202)  # no notification of a client has an effect in this era
            return
        routed = _routed(message, head)
        if routed is None or routed not in self._accepted:
            self._check_routing(message, head, routed)
        if message["method"] == "tools/call":
            name = message["params"].get("name")
            schema = self._state.gateway.tool_schema(caller, name) if type(name) is str else None
            if schema is not None:
                _check_param_headers(head, schema, message["params"].get("arguments"))
        exchange = Exchange(self._state, message["id"], http, _RULES, self._parked)
        await exchange.run(message["method"], caller, self._handle(message, caller, exchange))

    def _check_routing(self, message: Json, head: Head, routed: _Routed | None) -> None:
        """Check that headers and body agree, and remember it for an equal call. Raises HttpError."""
        routing = {name: head[key].decode("latin-1") for key, name in _ROUTING_HEADERS.items() if key in head}
        verdict = classify_inbound_request(message, headers=routing)
        if isinstance(verdict, InboundLadderRejection):
            raise _rejected(verdict)
        if routed is not None:
            if len(self._accepted) >= _MOST_ACCEPTED:
                self._accepted.clear()
            self._accepted.add(routed)

    async def _handle(self, message: Json, caller: Caller, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        method, params = message["method"], message["params"]
        check = MODERN_METHODS.get(method)
        if check is not None:
            client = modern_client(params["_meta"])
            check(params)
            request = exchange.request = FrontRequest(
                next(self._state.request_ids), method, params, caller, client, exchange.span
            )
            if params.get("requestState") is not None and method in INPUT_REQUIRED_METHODS:  # a retry with answers
                state = self._parked.seal.open(request, params["requestState"])
                if "park" in state:
                    return await self._parked.resume(state["park"], exchange)
                request = _continued(request, state)
            result = await self._state.gateway.handle(request, exchange)
            if result.get("resultType") == "input_required":
                result = self._seal_state(request, result)
            return self._as_modern(method, result)
        if method == "server/discover":
            modern_client(params["_meta"])
            return self._as_modern(method, await self._describe_server(caller))
        if method == "subscriptions/listen":
            request = FrontRequest(
                next(self._state.request_ids), method, params, caller, modern_client(params["_meta"])
            )
            return self._as_modern(method, await self._listeners.serve(message["id"], request, exchange))
        raise method_not_found()

    def _seal_state(self, request: FrontRequest, result: Json) -> Json:
        """Seal a modern server's own state, and that a person said yes and that the call was counted: for this caller
        and this very call only.
        """
        state = result.get("requestState")
        ours = {name: result[key] for key, name in _SEALED.items() if result.get(key) is not None}
        if ours:
            result = {key: value for key, value in result.items() if key not in _SEALED}
        elif state is None:
            return result
        content: Json = {"state": state, **ours}
        return {**result, "requestState": self._parked.seal.close(request, content, self._parked.wait_s)}

    def _as_modern(self, method: str, result: Json) -> Json:
        """Add what this era requires of a result. Copies the result, because the gateway may share it."""
        meta = result.get("_meta")
        modern = {"resultType": "complete", **result, "_meta": {**meta, **self._meta} if meta else self._meta}
        ttl_ms = _TTL_MS.get(method)
        if ttl_ms is not None and modern["resultType"] == "complete":
            modern.setdefault("ttlMs", ttl_ms)
            modern["cacheScope"] = "private"  # results depend on the caller's token
        return modern

    async def _describe_server(self, caller: Caller) -> Json:
        result: Json = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self._state.gateway.capabilities(caller, "modern"),
        }
        instructions = await self._state.instructions(caller)
        if instructions is not None:
            result["instructions"] = instructions
        return result


def _continued(request: FrontRequest, content: Json) -> FrontRequest:
    """The next round of a call: with the state that a modern server gave us, if it gave one."""
    params = {**request.params, "requestState": content["state"]}
    if content["state"] is None:
        del params["requestState"]
    return replace(
        request,
        params=params,
        confirmation=content.get("confirmation"),
        counted_round=content.get("counted_round"),
    )


def _routed(message: Json, head: Head) -> _Routed | None:
    """All that the check of a call's headers depends on. None: it is no call, is incomplete, or has a long name."""
    params = message.get("params") or {}
    meta = params.get("_meta")
    if not meta or message["method"] != "tools/call" or CLIENT_CAPABILITIES_META_KEY not in meta:
        return None
    name, version = params.get("name"), meta.get(PROTOCOL_VERSION_META_KEY)
    if type(name) is not str or type(version) is not str or len(name) > _LONGEST_NAME:
        return None
    return name, version, head.get(b"mcp-name"), head.get(b"mcp-method"), head.get(b"mcp-protocol-version")


def _check_param_headers(head: Head, schema: Json, arguments: object) -> None:
    """Check that arguments that are repeated in headers are the same in both. Raises HttpError."""
    headers = {key.decode(): value.decode("latin-1") for key, value in head.items() if key.startswith(_PARAM_PREFIX)}
    rejection = validate_mcp_param_headers(schema, arguments if type(arguments) is dict else {}, headers)
    if rejection is not None:
        raise _rejected(rejection)


def _rejected(rejection: InboundLadderRejection) -> HttpError:
    status = ERROR_CODE_HTTP_STATUS.get(rejection.code, 400)
    return HttpError(status, rejection.message, code=rejection.code, data=rejection.data)
