"""`subscriptions/listen`: a modern client's long-running request, on whose stream it receives changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from pointsman.core.errors import UnauthorizedError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import INTERNAL_ERROR, INVALID_REQUEST, Change, FrontRequest, ProtocolError
from pointsman.router.front.exchange import Exchange
from pointsman.router.front.http.responses import HttpError
from pointsman.router.front.http.stream import OpenStreams, cancel, forward_changes
from pointsman.router.front.methods import invalid
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


class Listeners:
    def __init__(self, state: FrontState, streams: OpenStreams, check_stream_share: Callable[[Caller], None]) -> None:
        """`check_stream_share` raises HttpError 429."""
        self._state = state
        self._streams = streams
        self._check_stream_share = check_stream_share
        self._count: Counter[str] = Counter()  # by token id

    async def serve(self, client_id: str | int, request: FrontRequest, exchange: Exchange) -> Json:
        """Acknowledge, then notify of changes until the client disconnects. Raises ProtocolError."""
        subscribed = _read_subscription(request.params)
        token_id = request.caller.token_id
        if self._count[token_id] >= _EACH:
            raise ProtocolError(
                INTERNAL_ERROR,
                f"This token has {_EACH} subscriptions open, which is the limit. Close one, then try again.",
            )
        try:
            self._check_stream_share(request.caller)
        except HttpError as error:
            raise ProtocolError(INTERNAL_ERROR, error.message, error.data) from None
        listener = Listener(self._state, request, exchange, subscribed, {_SUBSCRIPTION_ID: client_id})
        self._count[token_id] += 1
        try:
            with self._streams.track(request.caller) as ended:
                await listener.run(ended)
        finally:
            self._count[token_id] -= 1
            if not self._count[token_id]:
                del self._count[token_id]
        return {"_meta": listener.meta}


class Listener:
    def __init__(
        self, state: FrontState, request: FrontRequest, exchange: Exchange, subscribed: Json, meta: Json
    ) -> None:
        self._state = state
        self._request = request
        self._exchange = exchange
        self._subscribed = subscribed
        self.meta = meta
        self._subscriptions = Subscriptions(state)
        self._early: list[Change] | None = []  # held back, because the acknowledgement must be the first message

    async def run(self, ended: asyncio.Future[None]) -> None:
        changes = self._state.gateway.changes(self._request.caller)
        # Started first, so that no change is missed.
        forwarding = asyncio.ensure_future(forward_changes(changes, self._notify, ended))
        try:
            await self._subscribe()
            self._check_still_valid()
            self._acknowledge()
            await forwarding
        finally:
            self._subscriptions.end()
            await cancel(forwarding)

    async def _subscribe(self) -> None:
        """Subscribe to the resources; those that fail are omitted from the acknowledgement."""
        uris = self._subscribed.pop(_RESOURCES, [])
        if not uris:
            return
        caller, client = self._request.caller, self._request.client
        add = self._subscriptions.add
        done = await asyncio.gather(*(add(uri, caller, client, self._exchange) for uri in uris))
        honoured = [uri for uri, subscribed in zip(uris, done, strict=True) if subscribed]
        if honoured:
            self._subscribed[_RESOURCES] = honoured

    def _check_still_valid(self) -> None:
        """Check the token again, because subscribing may have taken long. Raises ProtocolError."""
        if not self._state.gateway.still_valid(self._request.caller):
            raise ProtocolError(
                INVALID_REQUEST,
                "This token is no longer valid. Ask the operator for another.",
                {"code": UnauthorizedError.code},
            )

    def _acknowledge(self) -> None:
        honoured = {"notifications": self._subscribed, "_meta": self.meta}
        self._exchange.notify("notifications/subscriptions/acknowledged", honoured)
        early, self._early = self._early, None
        for change in early or ():
            self._notify(change)

    def _notify(self, change: Change) -> bool:
        if self._early is not None:
            self._early.append(change)
            return len(self._early) <= MOST
        if not self._is_subscribed(change):
            return True
        notice = {**change.params, "_meta": self.meta}
        return self._exchange.send_message({"jsonrpc": "2.0", "method": change.method, "params": notice})

    def _is_subscribed(self, change: Change) -> bool:
        if change.method == UPDATED:
            return change.params.get("uri") in self._subscriptions
        return _KINDS.get(change.method) in self._subscribed


def _read_subscription(params: Json) -> Json:
    """Return the kinds of notifications and the resources that a client subscribes to. Raises ProtocolError."""
    asked = params.get("notifications")
    if type(asked) is not dict:
        raise invalid("`notifications` must be an object")
    subscribed: Json = {kind: True for kind in _KINDS.values() if asked.get(kind) is True}
    uris = asked.get(_RESOURCES) or []
    if type(uris) is not list or not all(type(uri) is str for uri in uris):
        raise invalid(f"`{_RESOURCES}` must be a list of strings")
    if len(uris) > MOST:
        raise invalid(f"`{_RESOURCES}` may name at most {MOST} resources")
    if uris:
        subscribed[_RESOURCES] = list(dict.fromkeys(uris))
    return subscribed
