"""`subscriptions/listen`: a modern client's open request, answered with the changes that it asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from pointsman.core.errors import UnauthorizedError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import INTERNAL_ERROR, INVALID_REQUEST, Change, FrontRequest, ProtocolError
from pointsman.router.front.exchange import Exchange
from pointsman.router.front.http.refusal import HttpError
from pointsman.router.front.http.stream import forward, stop
from pointsman.router.front.methods import invalid
from pointsman.router.front.open_streams import OpenStreams
from pointsman.router.front.state import FrontState
from pointsman.router.front.subscriptions import MOST, UPDATED, Subscriptions

_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_EACH: Final = 64  # streams of one token
_KINDS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_RESOURCES: Final = "resourceSubscriptions"


class Listening:
    def __init__(self, desk: FrontState, streams: OpenStreams, check_share: Callable[[Caller], None]) -> None:
        """`check_share` raises Refusal where a token has its share of streams."""
        self._desk = desk
        self._streams = streams
        self._check_share = check_share
        self._count: Counter[str] = Counter()  # by token id

    async def serve(self, client_id: str | int, request: FrontRequest, exchange: Exchange) -> Json:
        """Acknowledge, then tell of changes until the client leaves. Raises ProtocolError."""
        wanted = _wanted(request.params)
        token_id = request.caller.token_id
        if self._count[token_id] >= _EACH:
            raise ProtocolError(INTERNAL_ERROR, "Subscription limit reached")
        try:
            self._check_share(request.caller)
        except HttpError as refusal:
            raise ProtocolError(INTERNAL_ERROR, refusal.message, refusal.data) from None
        listener = Listener(self._desk, request, exchange, wanted, {_SUBSCRIPTION_ID: client_id})
        self._count[token_id] += 1
        try:
            with self._streams.entered(request.caller) as ended:
                await listener.run(ended)
        finally:
            self._count[token_id] -= 1
            if not self._count[token_id]:
                del self._count[token_id]
        return {"_meta": listener.meta}


class Listener:
    def __init__(self, desk: FrontState, request: FrontRequest, exchange: Exchange, wanted: Json, meta: Json) -> None:
        self._desk = desk
        self._request = request
        self._exchange = exchange
        self._wanted = wanted
        self.meta = meta
        self._subscriptions = Subscriptions(desk)
        self._early: list[Change] | None = []  # came before the acknowledgement, which must be the first word

    async def run(self, ended: asyncio.Future[None]) -> None:
        changes = self._desk.gateway.changes(self._request.caller)
        forwarding = asyncio.ensure_future(forward(changes, self._heard, ended))  # first, so that nothing is missed
        try:
            await self._subscribe()
            self._check_still_valid()
            self._acknowledge()
            await forwarding
        finally:
            self._subscriptions.end()
            await stop(forwarding)

    async def _subscribe(self) -> None:
        """A resource that cannot be subscribed to is left out of what is acknowledged."""
        uris = self._wanted.pop(_RESOURCES, [])
        if not uris:
            return
        caller, client = self._request.caller, self._request.client
        add = self._subscriptions.add
        done = await asyncio.gather(*(add(uri, caller, client, self._exchange) for uri in uris))
        honoured = [uri for uri, subscribed in zip(uris, done, strict=True) if subscribed]
        if honoured:
            self._wanted[_RESOURCES] = honoured

    def _check_still_valid(self) -> None:
        """A server may take its time to subscribe, and the token may be gone by then. Raises ProtocolError."""
        if not self._desk.gateway.still_valid(self._request.caller):
            raise ProtocolError(INVALID_REQUEST, "The token does not hold any more.", {"code": UnauthorizedError.code})

    def _acknowledge(self) -> None:
        honoured = {"notifications": self._wanted, "_meta": self.meta}
        self._exchange.tell("notifications/subscriptions/acknowledged", honoured)
        early, self._early = self._early, None
        for change in early or ():
            self._heard(change)

    def _heard(self, change: Change) -> bool:
        if self._early is not None:
            self._early.append(change)
            return len(self._early) <= MOST
        if not self._wants(change):
            return True
        notice = {**change.params, "_meta": self.meta}
        return self._exchange.say({"jsonrpc": "2.0", "method": change.method, "params": notice})

    def _wants(self, change: Change) -> bool:
        if change.method == UPDATED:
            return change.params.get("uri") in self._subscriptions
        return _KINDS.get(change.method) in self._wanted


def _wanted(params: Json) -> Json:
    """What a client listens for, without what it does not. Raises ProtocolError."""
    asked = params.get("notifications")
    if type(asked) is not dict:
        raise invalid("`notifications` must be an object")
    wanted: Json = {kind: True for kind in _KINDS.values() if asked.get(kind) is True}
    uris = asked.get(_RESOURCES) or []
    if type(uris) is not list or not all(type(uri) is str for uri in uris):
        raise invalid(f"`{_RESOURCES}` must be a list of strings")
    if len(uris) > MOST:
        raise invalid(f"`{_RESOURCES}` may name at most {MOST} resources")
    if uris:
        wanted[_RESOURCES] = list(dict.fromkeys(uris))
    return wanted
