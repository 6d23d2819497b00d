"""Keeps `subscriptions/listen` open at a modern server, over any transport, so that its changes are heard of."""

from __future__ import annotations

import asyncio

from pointsman.catalog.errors import DownstreamRefusal
from pointsman.catalog.model import Json
from pointsman.router.downstream.connection import BudgetBroken, Call, Connection, ConnectionLost, Noticed
from pointsman.router.downstream.standing import Pauses
from pointsman.router.downstream.watches import Watched
from pointsman.router.seams import METHOD_NOT_FOUND

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_LISTS = ("tools", "prompts", "resources")


async def subscribe_again(connection: Connection, watched: Watched) -> None:
    """The legacy way: one request for each resource, on each new connection or session."""
    for uri in tuple(watched()):
        if uri not in watched():
            continue  # nobody wants it any more
        try:
            await connection.request(Call("resources/subscribe", {"uri": uri}))
        except DownstreamRefusal:
            continue  # that one is no more
        except (ConnectionLost, BudgetBroken):
            return


class Subscriptions:
    """One request that stays open: for the lists that the server declares, and for the resources being watched."""

    def __init__(self, connection: Connection, noticed: Noticed, watched: Watched) -> None:
        declared = connection.introduction.capabilities
        self._connection = connection
        self._noticed = noticed
        self._lists = [
            name for name in _LISTS if isinstance(declared.get(name), dict) and declared[name].get("listChanged")
        ]
        self._watched = watched  # its owner says `changed`
        self._pauses = Pauses()
        self._missed = False  # there was a gap, in which changes may have gone unheard
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Other resources are watched now: the request is replaced."""
        self._changed.set()

    def acknowledged(self) -> None:
        """The server has taken the request. After a gap anything may have changed, so that is what is told."""
        self._pauses.reset()
        if self._missed:
            self._missed = False
            for name in self._lists:
                self._noticed(f"notifications/{name}/list_changed", {})

    async def run(self) -> None:
        """Until cancelled, or until the server says that it has no such thing."""
        while True:
            self._changed.clear()
            wanted = self._filter()
            if not wanted:
                await self._changed.wait()
                continue
            try:
                await self._listen(wanted)
            except DownstreamRefusal as refusal:
                if refusal.code == METHOD_NOT_FOUND:
                    return
            except (ConnectionLost, BudgetBroken):
                pass  # what is wrong with the server shows in its calls; here it is only tried again
            if not self._changed.is_set():
                self._missed = True
                await self._pauses.wait()

    def _filter(self) -> Json:
        wanted: Json = {f"{name}ListChanged": True for name in self._lists}
        if watched := self._watched():
            wanted["resourceSubscriptions"] = sorted(watched)
        return wanted

    async def _listen(self, wanted: Json) -> None:
        stream = asyncio.ensure_future(self._connection.request(Call(LISTEN, {"notifications": wanted})))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((stream, change), return_when=asyncio.FIRST_COMPLETED)
            if stream.done():
                stream.result()
        finally:
            stream.cancel()
            change.cancel()
            await asyncio.gather(stream, change, return_exceptions=True)
