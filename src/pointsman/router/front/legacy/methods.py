"""What the messages of a legacy session mean, whichever transport brings them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pointsman.core.model import Caller, Json
from pointsman.core.seams import Change, Client, FrontRequest
from pointsman.router.front.exchange import Exchange
from pointsman.router.front.legacy.sessions import Session
from pointsman.router.front.methods import LEGACY_METHODS, log_level, method_not_found, progress_token
from pointsman.router.front.state import FrontState
from pointsman.router.front.subscriptions import SUBSCRIBE, UNSUBSCRIBE, UPDATED

_MODERN_FIELDS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_SUBSCRIBING: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE})


class LegacyMethods:
    def __init__(self, desk: FrontState) -> None:
        self._desk = desk

    def welcome(self, client: Client, caller: Caller) -> Json:
        """The result of `initialize`."""
        result: Json = {
            "protocolVersion": client.version,
            "capabilities": self._desk.gateway.capabilities(caller, "legacy"),
            "serverInfo": self._desk.server_info,
        }
        instructions = self._desk.instructions(caller)
        if instructions is not None:
            result["instructions"] = instructions
        return result

    def notice(self, session: Session, method: str, params: Json) -> None:
        if method != "notifications/cancelled":
            return  # `initialized` and the like: nothing here waits for them
        client_id = params.get("requestId")
        if type(client_id) is int or type(client_id) is str:
            session.cancel(client_id)

    async def run(self, session: Session, message: Json, caller: Caller, exchange: Exchange) -> None:
        """A request, from the first to the last word of its answer."""
        client_id, method = message["id"], message["method"]
        same_id = session.calls.setdefault(client_id, [])
        same_id.append(exchange)
        try:
            await exchange.run(method, self._work(session, method, message.get("params") or {}, caller, exchange))
        finally:
            same_id.remove(exchange)
            if not same_id:
                del session.calls[client_id]

    async def _work(self, session: Session, method: str, params: Json, caller: Caller, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        check = LEGACY_METHODS.get(method)
        if check is not None:
            check(params)
            client = session.client
            token = progress_token(params.get("_meta"))
            if token is not None:
                client = replace(client, progress_token=token)
            request = FrontRequest(self._desk.new_id(), method, params, caller, client)
            if method in _SUBSCRIBING:
                return as_legacy(await session.subscriptions.carry(request, exchange))
            return as_legacy(await self._desk.gateway.handle(request, exchange))
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            session.client = replace(session.client, log_level=log_level(params.get("level"), "level"))
            return {}
        raise method_not_found()


def wanted(session: Session, change: Change) -> bool:
    """Whether this session is told of it: lists concern everyone, resources those who subscribed."""
    return change.method != UPDATED or change.params.get("uri") in session.subscriptions


def as_legacy(result: Json) -> Json:
    """Without what only the modern era knows. The result may be shared, so it is copied where it changes."""
    content = result.get("structuredContent")
    illegal = content is not None and type(content) is not dict
    if not illegal and _MODERN_FIELDS.isdisjoint(result):
        return result
    return {
        key: value
        for key, value in result.items()
        if key not in _MODERN_FIELDS and not (illegal and key == "structuredContent")
    }
