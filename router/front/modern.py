"""The modern era, 2026-07-28: each POST stands alone, says who it is in `_meta`, and ends when its connection does."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Final

from starlette.types import Receive, Send

from pointsman.catalog.model import Caller, Json
from pointsman.router.front.answers import respond
from pointsman.router.front.checks import Head
from pointsman.router.front.desk import Desk
from pointsman.router.front.exchange import EraRules, Exchange
from pointsman.router.front.legacy import client_name
from pointsman.router.front.methods import MODERN_METHODS, invalid, log_level, method_not_found, progress_token
from pointsman.router.front.parking import Parking
from pointsman.router.front.refusal import Refusal
from pointsman.router.front.stream import forward
from pointsman.router.sdk import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    ERROR_CODE_HTTP_STATUS,
    INPUT_REQUIRED_METHODS,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
)
from pointsman.router.seams import INTERNAL_ERROR, Change, Client, FrontRequest, ProtocolError

_RULES = EraRules(leaving_cancels=True, error_status=ERROR_CODE_HTTP_STATUS)
_ROUTING_HEADERS: Final = {name.encode(): name for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}
_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_LISTENING_EACH: Final = 64  # streams of one token
_KINDS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
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
    def __init__(self, desk: Desk, parking: Parking) -> None:
        self._desk = desk
        self._parking = parking
        self._stamp = parking.stamp
        self._listening: Counter[str] = Counter()  # by token id
        self._closing: asyncio.Future[None] | None = None

    async def post(self, head: Head, message: Json, caller: Caller, receive: Receive, send: Send) -> None:
        """Raises Refusal 400."""
        if "method" not in message:
            raise Refusal(400, "The body must be a JSON-RPC request or notification: a modern client is never asked.")
        routing = {name: head[key].decode("latin-1") for key, name in _ROUTING_HEADERS.items() if key in head}
        if "id" not in message:
            _refuse_rejected(unsupported_protocol_version_rejection(routing["mcp-protocol-version"]))
            await respond(send, 202)  # this era has no notification that a client could send to any effect
            return
        verdict = classify_inbound_request(message, headers=routing)
        if isinstance(verdict, InboundLadderRejection):
            _refuse_rejected(verdict)
        exchange = Exchange(self._desk, message["id"], receive, send, _RULES, self._parking)
        await exchange.run(message["method"], self._work(message, caller, exchange))

    def end_streams(self) -> None:
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    async def _work(self, message: Json, caller: Caller, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        method, params = message["method"], message["params"]
        check = MODERN_METHODS.get(method)
        if check is not None:
            client = _introduced(params["_meta"])
            check(params)
            request = exchange.request = FrontRequest(self._desk.new_id(), method, params, caller, client)
            if params.get("requestState") is not None and method in INPUT_REQUIRED_METHODS:
                return await self._retry(request, exchange)
            return await self._carry(request, exchange)
        if method == "server/discover":
            _introduced(params["_meta"])
            return self._stamped(method, self._discovered(caller))
        if method == "subscriptions/listen":
            _introduced(params["_meta"])
            return self._stamped(method, await self._listen(message["id"], params, caller, exchange))
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
        if self._desk.instructions is not None:
            result["instructions"] = self._desk.instructions
        return result

    async def _listen(self, client_id: str | int, params: Json, caller: Caller, exchange: Exchange) -> Json:
        """Acknowledge, then tell of changes until the client leaves. Raises ProtocolError."""
        wanted = _wanted(params)
        if self._listening[caller.token_id] >= _LISTENING_EACH:
            raise ProtocolError(INTERNAL_ERROR, "Subscription limit reached")
        meta = {_SUBSCRIPTION_ID: client_id}
        uris = frozenset(wanted.get("resourceSubscriptions", ()))

        def say(change: Change) -> bool:
            kind = _KINDS.get(change.method)
            if kind in wanted or change.params.get("uri") in uris:
                notice = {**change.params, "_meta": meta}
                return exchange.say({"jsonrpc": "2.0", "method": change.method, "params": notice})
            return True

        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        self._listening[caller.token_id] += 1
        try:
            exchange.tell("notifications/subscriptions/acknowledged", {"notifications": wanted, "_meta": meta})
            await forward(self._desk.gateway.changes(caller), say, self._closing)
        finally:
            self._listening[caller.token_id] -= 1
        return {"_meta": meta}


def _refuse_rejected(rejection: InboundLadderRejection | None) -> None:
    """Raises Refusal."""
    if rejection is not None:
        status = ERROR_CODE_HTTP_STATUS.get(rejection.code, 400)
        raise Refusal(status, rejection.message, code=rejection.code, data=rejection.data)


def _introduced(meta: Json) -> Client:
    """The client as its envelope describes it. Raises ProtocolError."""
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


def _wanted(params: Json) -> Json:
    """What a client listens for, without what it does not. Raises ProtocolError."""
    asked = params.get("notifications")
    if type(asked) is not dict:
        raise invalid("`notifications` must be an object")
    wanted: Json = {kind: True for kind in _KINDS.values() if asked.get(kind) is True}
    uris = asked.get("resourceSubscriptions") or []
    if type(uris) is not list or not all(type(uri) is str for uri in uris):
        raise invalid("`resourceSubscriptions` must be a list of strings")
    if uris:
        wanted["resourceSubscriptions"] = uris
    return wanted
