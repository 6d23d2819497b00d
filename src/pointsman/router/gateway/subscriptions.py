"""Subscriptions to resources: counts a caller's clients, and unsubscribes at the server when the last one leaves."""

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
    """Counts subscribers by caller and by the URI that the client used. Each one unsubscribes in the end.

    The downstream side decides whether callers share a subscription, and on which connection.
    """

    def __init__(self, reads: Reads, fleet: Fleet) -> None:
        self._reads = reads
        self._fleet = fleet
        # By server id and its own URI, then by caller: the URIs that clients used.
        self._subscribers: dict[tuple[str, str], dict[Caller, Counter[str]]] = {}
        self._targets: dict[tuple[Caller, str], list[Target]] = {}  # one for each subscriber

    def client_uris(self, server_id: str, uri: str) -> Iterable[str]:
        """Return the URIs by which clients subscribe to a server's resource."""
        subscribers = self._subscribers.get((server_id, uri), {})
        return {client_uri for client_uris in subscribers.values() for client_uri in client_uris}

    async def subscribe(self, request: FrontRequest, back: BackChannel) -> Json:
        """Always sent to the server, which may have restarted or may refuse it now. Raises ProtocolError."""
        uri: str = request.params["uri"]
        target, _ = await self._reads.send_to_resource(request, back, uri)
        self._targets.setdefault((request.caller, uri), []).append(target)
        subscribers = self._subscribers.setdefault((target.server_id, target.own), {})
        subscribers.setdefault(request.caller, Counter())[uri] += 1
        return {}

    async def unsubscribe(self, request: FrontRequest, back: BackChannel) -> Json:
        """Needs no rights, because they may be revoked by now.

        Raises:
            ProtocolError: the audit cannot record it. The caller receives no more updates all the same, but the server
                remains subscribed until it is connected again, because nothing may be sent without a record.
        """
        uri: str = request.params["uri"]
        targets = self._targets.get((request.caller, uri))
        if not targets:
            return {}
        target = targets.pop()
        if not targets:
            del self._targets[request.caller, uri]
        if self._remove(target, request.caller, uri):
            await self._send(target, request, back)
        return {}

    def _remove(self, target: Target, caller: Caller, uri: str) -> bool:
        """Remove a subscriber. Return whether it was the caller's last one."""
        subscribers = self._subscribers[target.server_id, target.own]
        client_uris = subscribers[caller]
        client_uris[uri] -= 1
        if not client_uris[uri]:
            del client_uris[uri]
        if client_uris:
            return False
        del subscribers[caller]
        if not subscribers:
            del self._subscribers[target.server_id, target.own]
        return True

    async def _send(self, target: Target, request: FrontRequest, back: BackChannel) -> None:
        server = self._fleet.servers.get(target.server_id)
        if server is None:
            return
        try:
            with suppress(DownstreamError):  # a server that refuses is not subscribed
                await self._reads.send(target.server_id, {"uri": target.own}, request, back, uri_parts(target.own))
        except AuditUnavailableError as error:
            server.subscribed.discard(request.caller, target.own)
            raise unavailable(error) from None
        except GatewayError:
            return  # a server that is not connected has no subscriptions
