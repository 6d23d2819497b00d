"""Notifies callers of changes: each only of servers that it may use at send time, coalesced to the latest."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakSet

from pointsman.catalog.names import prefix_of
from pointsman.catalog.rights import RightsIndex
from pointsman.core.model import Caller
from pointsman.core.seams import Change

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
UPDATED: Final = "notifications/resources/updated"
MOST_PENDING = 1_000  # changes of one listener that reads slowly; the oldest are dropped

ClientUris = Callable[[str, str], Iterable[str]]
"""The URIs by which clients subscribe to a resource, by server id and the server's own URI."""


class ChangeHub:
    def __init__(self, rights: Callable[[], RightsIndex], client_uris: ClientUris) -> None:
        self._rights = rights
        self._client_uris = client_uris
        self._listeners: WeakSet[Listener] = WeakSet()  # a listener without a reader disappears by itself

    def listen(self, caller: Caller) -> Listener:
        """Return a listener that receives changes from now on."""
        listener = Listener(caller, self._allows)
        listener.view = _view(self._rights(), caller)
        self._listeners.add(listener)
        return listener

    def publish(self, server_id: str, change: Change) -> None:
        """Pass on a change that a server announced."""
        for translated in self._translate(server_id, change):
            for listener in list(self._listeners):
                if self._allows(listener.caller, server_id, translated):
                    listener.put(server_id, translated)

    def lists_changed(self, server_id: str) -> None:
        """Notify the callers of a server that something of it was approved."""
        for method in (TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED):
            self.publish(server_id, Change(method, {}))

    def rights_changed(self) -> None:
        """Notify the callers whose lists a reload has changed."""
        for listener in list(self._listeners):
            before, listener.view = listener.view, _view(self._rights(), listener.caller)
            for method in (TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED):
                if before[method] != listener.view[method]:
                    listener.put(None, Change(method, {}))

    def _translate(self, server_id: str, change: Change) -> list[Change]:
        """Return the change as clients see it: with the URIs that they used."""
        if change.method != UPDATED:
            return [Change(change.method, {})]
        uri = change.params.get("uri")
        if not isinstance(uri, str):
            return []
        client_uris = self._client_uris(server_id, uri)
        return [Change(UPDATED, {**change.params, "uri": client_uri}, change.only) for client_uri in client_uris]

    def _allows(self, caller: Caller, server_id: str, change: Change) -> bool:
        if change.only not in (None, caller):
            return False
        rights = self._rights()
        if change.method != TOOLS_CHANGED:
            return rights.may_use_server(caller, server_id) and rights.may_read(caller)
        # The two tools never change.
        return rights.is_flat(caller) and rights.tool_grant(caller, server_id) is not None


class Listener:
    """An async iterator of changes for one stream. `put` never waits; equal changes are coalesced."""

    def __init__(self, caller: Caller, allows: Callable[[Caller, str, Change], bool]) -> None:
        self.caller = caller
        self.view: dict[str, object] = {}
        self._allows = allows
        self._pending: OrderedDict[tuple[str, object], tuple[str | None, Change]] = OrderedDict()
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, server_id: str | None, change: Change) -> None:
        if self._closed:
            return
        key = (change.method, change.params.get("uri"))
        self._pending[key] = (server_id, change)
        self._pending.move_to_end(key)
        if len(self._pending) > MOST_PENDING:
            self._pending.popitem(last=False)
        self._wake.set()

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Change:
        while not self._closed:
            while self._pending:
                _, (server_id, change) = self._pending.popitem(last=False)
                if server_id is None or self._allows(self.caller, server_id, change):  # rights may have changed since
                    return change
            self._wake.clear()
            await self._wake.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._closed = True
        self._pending.clear()
        self._wake.set()


def _view(rights: RightsIndex, caller: Caller) -> dict[str, object]:
    """Return what a caller's lists depend on, for comparison."""
    servers = rights.servers_of(caller)
    names = tuple((server_id, server.enabled, prefix_of(server_id, server)) for server_id, server in servers.items())
    tools = tuple((server_id, tuple(sorted(one.tool_permissions.items()))) for server_id, one in servers.items())
    trusted = tuple(server_id for server_id, one in servers.items() if one.trusts_annotations)
    readable = names if rights.may_read(caller) else None
    return {
        RESOURCES_CHANGED: readable,
        PROMPTS_CHANGED: readable,
        TOOLS_CHANGED: (names, tools, trusted, rights.limits_of(caller)) if rights.is_flat(caller) else None,
    }
