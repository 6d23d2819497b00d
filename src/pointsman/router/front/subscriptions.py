"""The resources that a session or listener subscribes to: each subscribed once, and all released at the end."""

from __future__ import annotations

from contextlib import suppress

from pointsman.core.model import Caller, Json
from pointsman.core.seams import INVALID_REQUEST, BackChannel, CannotAskError, Client, FrontRequest, ProtocolError
from pointsman.router.front.state import FrontState

SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"
UPDATED = "notifications/resources/updated"
MOST = 256  # of one session or listener


class Subscriptions:
    """The gateway counts subscribers; this ensures that each one is added once and removed once."""

    __slots__ = ("_ended", "_requests", "_state")

    def __init__(self, state: FrontState) -> None:
        self._state = state
        self._requests: dict[str, FrontRequest] = {}  # by URI
        self._ended = False

    def __contains__(self, uri: object) -> bool:
        return uri in self._requests

    def __bool__(self) -> bool:
        return bool(self._requests)

    async def handle(self, request: FrontRequest, back: BackChannel) -> Json:
        """Handle a client's request to subscribe or unsubscribe. Raises ProtocolError."""
        uri = request.params["uri"]
        if request.method == UNSUBSCRIBE:
            if self._requests.pop(uri, None) is None:
                return {}
            return await self._state.gateway.handle(request, back)
        if uri in self._requests:
            return {}
        if len(self._requests) >= MOST:
            raise ProtocolError(
                INVALID_REQUEST, f"At most {MOST} resources can be subscribed to at once. Unsubscribe from some first."
            )
        result = await self._state.gateway.handle(request, back)
        if uri in self._requests or self._ended:  # another request was faster, or the session ended meanwhile
            self._release(request)
        else:
            self._requests[uri] = request
        return result

    async def add(self, uri: str, caller: Caller, client: Client, back: BackChannel) -> bool:
        """Subscribe to `uri`. Return whether that succeeded."""
        request = FrontRequest(next(self._state.request_ids), SUBSCRIBE, {"uri": uri}, caller, client)
        try:
            await self.handle(request, back)
        except ProtocolError:
            return False
        return True

    def end(self) -> None:
        self._ended = True
        for request in self._requests.values():
            self._release(request)
        self._requests.clear()

    def _release(self, subscribed: FrontRequest) -> None:
        self._state.spawn(UNSUBSCRIBE, self._unsubscribe(subscribed))

    async def _unsubscribe(self, subscribed: FrontRequest) -> None:
        params = {"uri": subscribed.params["uri"]}
        request = FrontRequest(next(self._state.request_ids), UNSUBSCRIBE, params, subscribed.caller, subscribed.client)
        with suppress(ProtocolError):  # the server is gone, and its subscriptions with it
            await self._state.gateway.handle(request, NoClient())


class NoClient:
    """Fits `BackChannel`, for requests that no client waits for."""

    def notify(self, method: str, params: Json) -> None:
        pass

    async def ask(self, method: str, params: Json) -> Json:
        raise CannotAskError("No client waits for this request.")

    def reachable(self) -> bool:
        return False
