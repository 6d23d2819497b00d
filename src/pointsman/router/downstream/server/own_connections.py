"""`isolation: per-caller`: each caller has a connection of its own, opened on demand, closed when idle.

With `credentials: per-caller`, a connection is also for one account: a new sign-in has a new connection. A caller with
subscriptions needs its connection all the time: it is never idle, and is reopened when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

from pointsman.core.model import Caller, Json
from pointsman.router.downstream.connection import (
    Connect,
    Connection,
    ConnectionLostError,
    OnNotification,
    SignInNeededError,
)
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.downstream.server.connection_lease import ConnectionLease
from pointsman.router.downstream.server.start_queue import Rank, StartQueue
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED
from pointsman.router.serving.tasks import Backoff, TaskSet

IDLE_S = 600.0
MAX_CONNECTIONS = 100  # of one server at a time
_FAILURE_KEPT_S = 1.0  # calls within this time share one failure instead of starting the server each
_STEADY_AFTER_S = 60.0  # a connection that lasts this long resets the backoff

OnCallerNotification = Callable[[Caller, str, Json], None]
"""As `OnNotification`, with the caller on whose connection it came."""

SubscribedUrisOf = Callable[[Caller], Collection[str]]


class OwnConnections:
    """The connections of one server, one for each caller."""

    def __init__(
        self,
        connect: Connect,
        on_notification: OnCallerNotification,
        subscribed: SubscribedUrisOf,
        connect_s: Callable[[], float],
        *,
        idle_s: float = IDLE_S,
        most: int = MAX_CONNECTIONS,
        starts: StartQueue | None = None,
        accounts: CallerAccounts | None = None,
    ) -> None:
        self._connect = connect
        self._accounts = accounts
        self._on_notification = on_notification
        self._subscribed = subscribed
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._most = most
        self._starts = starts
        self._ready: dict[tuple[Caller, str], asyncio.Future[ConnectionLease]] = {}  # by caller and account
        self._kept: set[Caller] = set()
        self._tasks = TaskSet()
        self._stopping = False

    async def lease_for(self, caller: Caller) -> ConnectionLease:
        """The caller's connection; opened on demand, once for all calls that wait for it (single-flight).

        Raises:
            ConnectionLostError: it could not be opened, too many are open, or all are being stopped.
        """
        while True:
            account = "" if self._accounts is None else await self._accounts.look_up(caller)
            ready = self._ready.get((caller, account)) or self._open(caller, account)
            lease = await asyncio.shield(ready)
            if not lease.retired:
                return lease

    def current_lease(self, caller: Caller) -> ConnectionLease | None:
        """The caller's connection, if one is open."""
        account = "" if self._accounts is None else self._accounts.account_of(caller)
        ready = self._ready.get((caller, account))
        return ready.result() if ready is not None and _is_open(ready) else None

    def keep(self, caller: Caller) -> None:
        """Keep a connection open for a caller with subscriptions, until it has none; reopen it whenever it ends."""
        if caller not in self._kept:
            self._kept.add(caller)
            self._tasks.spawn(self._keep_open(caller))

    async def stop(self, drain_s: float) -> None:
        """Drain and close all connections: calls under way have `drain_s` to finish."""
        self._stopping = True
        leases = [ready.result() for ready in self._ready.values() if _is_open(ready)]
        self._ready.clear()
        await asyncio.gather(*(lease.retire(drain_s) for lease in leases))
        await self._tasks.close()

    def _open(self, caller: Caller, account: str) -> asyncio.Future[ConnectionLease]:
        if self._stopping:
            raise ConnectionLostError("it is being stopped")
        if len(self._ready) >= self._most:
            raise ConnectionLostError(f"{self._most} callers have a connection of their own already")
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[ConnectionLease] = loop.create_future()
        ready.add_done_callback(_mark_retrieved)
        self._ready[caller, account] = ready
        connect = self._connect if self._accounts is None else self._accounts.connect(caller)
        self._tasks.spawn(self._run(caller, account, connect, ready))
        return ready

    async def _keep_open(self, caller: Caller) -> None:
        loop, backoff = asyncio.get_running_loop(), Backoff()
        while self._subscribed(caller) and not self._stopping:
            since = loop.time()
            with suppress(ConnectionLostError):
                await (await self.lease_for(caller)).until_retired()
            if loop.time() - since >= _STEADY_AFTER_S:
                backoff.reset()
            if self._subscribed(caller):
                await backoff.wait()
        self._kept.discard(caller)

    async def _run(
        self, caller: Caller, account: str, connect: Connect, ready: asyncio.Future[ConnectionLease]
    ) -> None:
        lease: ConnectionLease | None = None
        try:
            lease = await self._lease(caller, connect)
            ready.set_result(lease)
            await self._until_idle_or_ended(lease, caller)
        except SignInNeededError as error:
            ready.set_exception(error)  # once the person has signed in, the next call need not wait
        except ConnectionLostError as error:
            ready.set_exception(error)
            await asyncio.sleep(_FAILURE_KEPT_S)
        finally:
            if not ready.done():
                ready.set_exception(ConnectionLostError("it was stopped before it was ready"))
            if self._ready.get((caller, account)) is ready:
                del self._ready[caller, account]  # before it is retired, so that no further call gets it
            if lease is not None:
                await lease.retire(0)

    async def _lease(self, caller: Caller, connect: Connect) -> ConnectionLease:
        lease: ConnectionLease | None = None

        def on_notification(method: str, params: Json) -> None:
            if method != ACKNOWLEDGED:
                self._on_notification(caller, method, params)
            elif lease is not None and lease.subscriptions is not None:
                lease.subscriptions.acknowledged(params)

        lease = ConnectionLease(
            await self._connection(connect, on_notification),
            on_notification,
            partial(self._subscribed, caller),
            own=True,
        )
        return lease

    async def _connection(self, connect: Connect, on_notification: OnNotification) -> Connection:
        if self._starts is None:
            return await self._connected(connect, on_notification)
        async with self._starts.slot(Rank.RAN_BEFORE):  # the shared connection is up, and a caller waits
            return await self._connected(connect, on_notification)

    async def _connected(self, connect: Connect, on_notification: OnNotification) -> Connection:
        limit_s = self._connect_s()
        try:
            async with asyncio.timeout(limit_s):
                return await connect(on_notification)
        except TimeoutError:
            raise ConnectionLostError(f"it was not ready within {limit_s:g} s") from None

    async def _until_idle_or_ended(self, lease: ConnectionLease, caller: Caller) -> None:
        ended = asyncio.ensure_future(lease.connection.ended())
        ended.add_done_callback(_mark_retrieved)
        try:
            while True:
                uses = lease.uses
                done, _ = await asyncio.wait((ended,), timeout=self._idle_s)
                if done or (lease.idle and lease.uses == uses and not self._subscribed(caller)):
                    return
        finally:
            ended.cancel()


def _is_open(ready: asyncio.Future[ConnectionLease]) -> bool:
    return ready.done() and not ready.cancelled() and ready.exception() is None


def _mark_retrieved(done: asyncio.Future[Any]) -> None:
    """Mark the error as retrieved: it does not matter if no call waits any more."""
    if not done.cancelled():
        done.exception()
