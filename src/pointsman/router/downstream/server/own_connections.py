"""`isolation: per-caller`: each caller has a connection of its own, opened when first needed, closed when idle.

A caller that watches resources needs its connection all the time: it is not idle, and is opened again when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from pointsman.core.model import Caller, Json
from pointsman.router.downstream.connection import Connect, Connection, ConnectionLostError, Noticed
from pointsman.router.downstream.server.connection_lease import ConnectionLease
from pointsman.router.downstream.server.start_queue import Rank, StartQueue
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED
from pointsman.router.serving.tasks import Backoff, TaskSet

IDLE_S = 600.0
MOST = 100  # connections of one server at a time
_FAILURE_KEPT_S = 1.0  # a server that cannot be started is not started once for every call
_STEADY_AFTER_S = 60.0  # a connection that lasted this long makes good for the failures before it

NoticedFor = Callable[[Caller, str, Json], None]
"""As `Noticed`, with the caller on whose connection it was said."""

WatchedBy = Callable[[Caller], Collection[str]]


class OwnConnections:
    """One task for each caller, from the first call to the end of its connection."""

    def __init__(
        self,
        connect: Connect,
        noticed: NoticedFor,
        watched: WatchedBy,
        connect_s: Callable[[], float],
        *,
        idle_s: float = IDLE_S,
        most: int = MOST,
        starts: StartQueue | None = None,
    ) -> None:
        self._connect = connect
        self._noticed = noticed
        self._watched = watched
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._most = most
        self._starts = starts
        self._ready: dict[Caller, asyncio.Future[ConnectionLease]] = {}
        self._kept: set[Caller] = set()
        self._tasks = TaskSet()
        self._stopping = False

    async def live_for(self, caller: Caller) -> ConnectionLease:
        """The caller's connection, opened if need be; once, however many calls wait for it.

        Raises:
            ConnectionLostError: it could not be opened, or too many others are open.
        """
        while True:
            ready = self._ready.get(caller) or self._open(caller)
            live = await asyncio.shield(ready)
            if not live.retired:
                return live

    def live_now(self, caller: Caller) -> ConnectionLease | None:
        """The caller's connection, where one is open."""
        ready = self._ready.get(caller)
        return ready.result() if ready is not None and _is_open(ready) else None

    def keep(self, caller: Caller) -> None:
        """For one that watches something: its connection is opened, and again whenever it ends, while that is so."""
        if caller not in self._kept:
            self._kept.add(caller)
            self._tasks.spawn(self._keep_open(caller))

    async def stop(self, drain_s: float) -> None:
        """Calls under way have `drain_s` to finish."""
        self._stopping = True
        lives = [ready.result() for ready in self._ready.values() if _is_open(ready)]
        self._ready.clear()
        await asyncio.gather(*(live.retire(drain_s) for live in lives))
        await self._tasks.close()

    def _open(self, caller: Caller) -> asyncio.Future[ConnectionLease]:
        if len(self._ready) >= self._most:
            raise ConnectionLostError(f"{self._most} callers have a connection of their own already")
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[ConnectionLease] = loop.create_future()
        ready.add_done_callback(_seen)
        self._ready[caller] = ready
        self._tasks.spawn(self._run(caller, ready))
        return ready

    async def _keep_open(self, caller: Caller) -> None:
        loop, pauses = asyncio.get_running_loop(), Backoff()
        while self._watched(caller) and not self._stopping:
            since = loop.time()
            with suppress(ConnectionLostError):
                await (await self.live_for(caller)).until_retired()
            if loop.time() - since >= _STEADY_AFTER_S:
                pauses.reset()
            if self._watched(caller):
                await pauses.wait()
        self._kept.discard(caller)

    async def _run(self, caller: Caller, ready: asyncio.Future[ConnectionLease]) -> None:
        live: ConnectionLease | None = None
        try:
            live = await self._live(caller)
            ready.set_result(live)
            await self._until_idle_or_ended(live, caller)
        except ConnectionLostError as error:
            ready.set_exception(error)
            await asyncio.sleep(_FAILURE_KEPT_S)
        finally:
            if not ready.done():
                ready.set_exception(ConnectionLostError("it was stopped before it was ready"))
            if self._ready.get(caller) is ready:
                del self._ready[caller]  # before it is retired, so that nobody is given it any more
            if live is not None:
                await live.retire(0)

    async def _live(self, caller: Caller) -> ConnectionLease:
        live: ConnectionLease | None = None

        def noticed(method: str, params: Json) -> None:
            if method != ACKNOWLEDGED:
                self._noticed(caller, method, params)
            elif live is not None and live.subscriptions is not None:
                live.subscriptions.acknowledged(params)

        live = ConnectionLease(await self._connection(noticed), noticed, partial(self._watched, caller))
        return live

    async def _connection(self, noticed: Noticed) -> Connection:
        if self._starts is None:
            return await self._connected(noticed)
        async with self._starts.slot(Rank.RAN_BEFORE):  # the shared connection stands, and a caller waits
            return await self._connected(noticed)

    async def _connected(self, noticed: Noticed) -> Connection:
        limit_s = self._connect_s()
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect(noticed)
        except TimeoutError:
            raise ConnectionLostError(f"it was not ready within {limit_s:g} s") from None

    async def _until_idle_or_ended(self, live: ConnectionLease, caller: Caller) -> None:
        ended = asyncio.ensure_future(live.connection.ended())
        try:
            while True:
                uses = live.uses
                done, _ = await asyncio.wait((ended,), timeout=self._idle_s)
                if done or (live.idle and live.uses == uses and not self._watched(caller)):
                    return
        finally:
            ended.cancel()


def _is_open(ready: asyncio.Future[ConnectionLease]) -> bool:
    return ready.done() and not ready.cancelled() and ready.exception() is None


def _seen(ready: asyncio.Future[ConnectionLease]) -> None:
    """Nobody may be waiting any more; then the error is of no interest."""
    if not ready.cancelled():
        ready.exception()
