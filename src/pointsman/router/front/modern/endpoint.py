"""The modern era, 2026-07-28: each POST stands alone, says who it is in `_meta`, and ends when its connection does."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.types import Receive, Send

from pointsman.core.model import Caller, Json
from pointsman.core.sdk import (
    ERROR_CODE_HTTP_STATUS,
    INPUT_REQUIRED_METHODS,
    MODERN_PROTOCOL_VERSIONS,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from pointsman.core.seams import FrontRequest
from pointsman.router.front.client_info import modern_client
from pointsman.router.front.exchange import EraRules, Exchange
from pointsman.router.front.http.answers import respond
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.refusal import HttpError
from pointsman.router.front.methods import MODERN_METHODS, method_not_found
from pointsman.router.front.modern.listen import Listening
from pointsman.router.front.modern.parking import Parking
from pointsman.router.front.state import FrontState

_RULES = EraRules(leaving_cancels=True, error_status=ERROR_CODE_HTTP_STATUS)
_PARAM: Final = b"mcp-param-"
_ROUTING_HEADERS: Final = {name.encode(): name for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}
# How long a client may keep an answer where the gateway says nothing itself. Lists are filtered by the
# caller's rights, which may change at any moment; what we are, and the two tools, hardly ever change.
_TTL_MS: Final = {
    "server/discover": 60_000,
    "tools/list": 60_000,
    "resources/list": 0,
    "resources/templates/list": 0,
    "prompts/list": 0,
    "resources/read": 0,
}


class ModernEra:
    def __init__(self, desk: FrontState, parking: Parking, listening: Listening) -> None:
        self._desk = desk
        self._parking = parking
        self._listening = listening
        self._stamp = parking.stamp

    async def post(self, head: Head, message: Json, caller: Caller, receive: Receive, send: Send) -> None:
        """Raises HttpError 400."""
        if "method" not in message:
            raise HttpError(400, "The body must be a JSON-RPC request or notification: a modern client is never asked.")
        routing = {name: head[key].decode("latin-1") for key, name in _ROUTING_HEADERS.items() if key in head}
        if "id" not in message:
            _refuse_rejected(unsupported_protocol_version_rejection(routing["mcp-protocol-version"]))
            await respond(send, 202)  # this era has no notification that a client could send to any effect
            return
        verdict = classify_inbound_request(message, headers=routing)
        if isinstance(verdict, InboundLadderRejection):
            _refuse_rejected(verdict)
        if message["method"] == "tools/call":
            self._check_mirrored(head, message["params"], caller)
        exchange = Exchange(self._desk, message["id"], receive, send, _RULES, self._parking)
        await exchange.run(message["method"], self._work(message, caller, exchange))

    def _check_mirrored(self, head: Head, params: Json, caller: Caller) -> None:
        """Arguments that a tool wants to see in headers, too, must be the same there. Raises HttpError."""
        name, arguments = params.get("name"), params.get("arguments")
        schema = self._desk.gateway.tool_schema(caller, name) if type(name) is str else None
        if schema is None:
            return
        mirrored = {key.decode(): value.decode("latin-1") for key, value in head.items() if key.startswith(_PARAM)}
        given = arguments if type(arguments) is dict else {}
        _refuse_rejected(validate_mcp_param_headers(schema, given, mirrored))

    async def _work(self, message: Json, caller: Caller, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        method, params = message["method"], message["params"]
        check = MODERN_METHODS.get(method)
        if check is not None:
            client = modern_client(params["_meta"])
            check(params)
            request = exchange.request = FrontRequest(self._desk.new_id(), method, params, caller, client)
            if params.get("requestState") is not None and method in INPUT_REQUIRED_METHODS:
                return await self._retry(request, exchange)
            return await self._carry(request, exchange)
        if method == "server/discover":
            modern_client(params["_meta"])
            return self._stamped(method, self._discovered(caller))
        if method == "subscriptions/listen":
            request = FrontRequest(self._desk.new_id(), method, params, caller, modern_client(params["_meta"]))
            return self._stamped(method, await self._listening.serve(message["id"], request, exchange))
        raise method_not_found()

    async def _retry(self, request: FrontRequest, exchange: Exchange) -> Json:
        """A request that answers questions, of a parked call or of a modern server. Raises ProtocolError."""
        carried = self._parking.seal.open(request, request.params["requestState"])
        if "park" in carried:
            return await self._parking.resume(carried["park"], exchange)
        params = {**request.params, "requestState": carried["state"]}
        return await self._carry(replace(request, params=params), exchange)

    async def _carry(self, request: FrontRequest, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        result = await self._desk.gateway.handle(request, exchange)
        if result.get("resultType") == "input_required":
            result = self._sealed(request, result)
        return self._stamped(request.method, result)

    def _sealed(self, request: FrontRequest, result: Json) -> Json:
        """A modern server's own state under our seal: it comes back only from this caller, for this very call."""
        state = result.get("requestState")
        if state is None:
            return result
        parking = self._parking
        return {**result, "requestState": parking.seal.close(request, {"state": state}, parking.wait_s)}

    def _stamped(self, method: str, result: Json) -> Json:
        """With what this era demands of a result. The gateway may share its dict, so it is copied."""
        meta = result.get("_meta")
        stamped = {"resultType": "complete", **result, "_meta": {**meta, **self._stamp} if meta else self._stamp}
        ttl_ms = _TTL_MS.get(method)
        if ttl_ms is not None and stamped["resultType"] == "complete":
            stamped.setdefault("ttlMs", ttl_ms)
            stamped["cacheScope"] = "private"  # what a caller sees depends on its token
        return stamped

    def _discovered(self, caller: Caller) -> Json:
        result: Json = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self._desk.gateway.capabilities(caller, "modern"),
        }
        instructions = self._desk.instructions(caller)
        if instructions is not None:
            result["instructions"] = instructions
        return result


def _refuse_rejected(rejection: InboundLadderRejection | None) -> None:
    """Raises HttpError."""
    if rejection is not None:
        status = ERROR_CODE_HTTP_STATUS.get(rejection.code, 400)
        raise HttpError(status, rejection.message, code=rejection.code, data=rejection.data)
