"""Subscriptions to resources: many clients of a caller may watch one; its server is told when the last one leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from pointsman.catalog.offers import Target
from pointsman.core.errors import AuditUnavailableError, DownstreamError, GatewayError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import BackChannel, FrontRequest
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.gateway.reads import Reads, unavailable, uri_parts


class ResourceSubscriptions:
    """Counts watchers by caller and by the URI that the client knows. Whoever subscribes, unsubscribes.

    Whether callers share a subscription is the server's own affair, as is which connection carries it.
    """

    def __init__(self, reads: Reads, fleet: Fleet) -> None:
        self._reads = reads
        self._fleet = fleet
        # By server id and its own URI, then by caller: names outside.
        self._watched: dict[tuple[str, str], dict[Caller, Counter[str]]] = {}
        self._held: dict[tuple[Caller, str], list[Target]] = {}  # one place for each watcher

    def forms(self, server_id: str, uri: str) -> Iterable[str]:
        """The names under which clients watch a resource."""
        watchers = self._watched.get((server_id, uri), {})
        return {form for forms in watchers.values() for form in forms}

    async def subscribe(self, request: FrontRequest, back: BackChannel) -> Json:
        """Always sent on: the server may have been restarted, or may refuse by now. Raises ProtocolError."""
        uri: str = request.params["uri"]
        place, _ = await self._reads.at_resource(request, back, uri)
        self._held.setdefault((request.caller, uri), []).append(place)
        watchers = self._watched.setdefault((place.server_id, place.own), {})
        watchers.setdefault(request.caller, Counter())[uri] += 1
        return {}

    async def unsubscribe(self, request: FrontRequest, back: BackChannel) -> Json:
        """What is not watched needs no ending. Needs no rights either, for they may be gone.

        Raises:
            ProtocolError: the audit cannot record it. The caller hears no more of the resource all the same; only the
                server, which may not be told anything then, believes that it is watched until it is connected anew.
        """
        uri: str = request.params["uri"]
        held = self._held.get((request.caller, uri))
        if not held:
            return {}
        place = held.pop()
        if not held:
            del self._held[request.caller, uri]
        if self._left(place, request.caller, uri):
            await self._send(place, request, back)
        return {}

    def _left(self, place: Target, caller: Caller, uri: str) -> bool:
        """Whether the caller's last watcher has left."""
        watchers = self._watched[place.server_id, place.own]
        forms = watchers[caller]
        forms[uri] -= 1
        if not forms[uri]:
            del forms[uri]
        if forms:
            return False
        del watchers[caller]
        if not watchers:
            del self._watched[place.server_id, place.own]
        return True

    async def _send(self, place: Target, request: FrontRequest, back: BackChannel) -> None:
        server = self._fleet.get(place.server_id)
        if server is None:
            return
        try:
            with suppress(DownstreamError):  # one that refuses needs no ending
                await self._reads.send(place.server_id, {"uri": place.own}, request, back, uri_parts(place.own))
        except AuditUnavailableError as error:
            server.subscribed.discard(request.caller, place.own)
            raise unavailable(error) from None
        except GatewayError:
            return  # one that is away is told nothing, and needs nothing
