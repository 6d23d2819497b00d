"""The resources that one session or one listener has subscribed to: each once, and all given up at the end."""

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
    """The gateway counts subscribers; this sees to it that each is counted once and off once."""

    __slots__ = ("_desk", "_over", "_uris")

    def __init__(self, desk: FrontState) -> None:
        self._desk = desk
        self._uris: dict[str, FrontRequest] = {}
        self._over = False

    def __contains__(self, uri: object) -> bool:
        return uri in self._uris

    def __bool__(self) -> bool:
        return bool(self._uris)

    async def carry(self, request: FrontRequest, back: BackChannel) -> Json:
        """A client's own request to subscribe or to unsubscribe. Raises ProtocolError."""
        uri = request.params["uri"]
        if request.method == UNSUBSCRIBE:
            if self._uris.pop(uri, None) is None:
                return {}
            return await self._desk.gateway.handle(request, back)
        if uri in self._uris:
            return {}
        if len(self._uris) >= MOST:
            raise ProtocolError(INVALID_REQUEST, f"At most {MOST} resources can be subscribed to at once")
        result = await self._desk.gateway.handle(request, back)
        if uri in self._uris or self._over:  # another request was quicker, or the session has ended meanwhile
            self._give_up(request)
        else:
            self._uris[uri] = request
        return result

    async def add(self, uri: str, caller: Caller, client: Client, back: BackChannel) -> bool:
        """Whether there is now a subscription."""
        request = FrontRequest(self._desk.new_id(), SUBSCRIBE, {"uri": uri}, caller, client)
        try:
            await self.carry(request, back)
        except ProtocolError:
            return False
        return True

    def end(self) -> None:
        self._over = True
        for request in self._uris.values():
            self._give_up(request)
        self._uris.clear()

    def _give_up(self, subscribed: FrontRequest) -> None:
        self._desk.beside(UNSUBSCRIBE, self._unsubscribe(subscribed))

    async def _unsubscribe(self, subscribed: FrontRequest) -> None:
        params = {"uri": subscribed.params["uri"]}
        request = FrontRequest(self._desk.new_id(), UNSUBSCRIBE, params, subscribed.caller, subscribed.client)
        with suppress(ProtocolError):  # the server is gone, and the subscription with it
            await self._desk.gateway.handle(request, Nobody())


class Nobody:
    """Fits `BackChannel`, for requests that no client waits for."""

    def tell(self, method: str, params: Json) -> None:
        pass

    async def ask(self, method: str, params: Json) -> Json:
        raise CannotAskError("No client waits for this request.")
