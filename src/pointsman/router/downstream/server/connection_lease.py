"""A connection in use: counts what is under way on it, so that it can be drained before it is closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.router.downstream.connection import (
    Call,
    CallNotSentError,
    Connection,
    ConnectionLostError,
    OnNotification,
)
from pointsman.router.downstream.server.liveness import Liveness
from pointsman.router.downstream.talk.server_messages import LOG_LEVELS, SET_LEVEL
from pointsman.router.downstream.talk.subscriptions import SubscribedUris, Subscriptions, resubscribe
from pointsman.router.serving.tasks import TaskSet


class ConnectionLease:
    """Use `with lease:` around everything that needs the connection."""

    __slots__ = (
        *("_idle", "_retired", "_tasks", "_under_way", "connection", "liveness", "log_level", "own", "subscriptions"),
        "uses",
    )

    def __init__(
        self, connection: Connection, on_notification: OnNotification, subscribed: SubscribedUris, *, own: bool = False
    ) -> None:
        self.connection = connection
        self.own = own  # one caller's, not the one that all share
        modern = connection.introduction.era == "modern"
        self.log_level = None if modern else LogLevel(connection)
        self.subscriptions = Subscriptions(connection, on_notification, subscribed) if modern else None
        listening = self.subscriptions.run if self.subscriptions else partial(resubscribe, connection, subscribed)
        self._tasks = TaskSet()
        self.liveness = Liveness(connection, self._tasks)
        self._tasks.start("subscriptions", listening)
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.uses = 0  # so far: unchanged means that it was idle in between
        self._retired = asyncio.Event()

    @property
    def retired(self) -> bool:
        return self._retired.is_set()

    async def until_retired(self) -> None:
        await self._retired.wait()

    @property
    def idle(self) -> bool:
        return self._under_way == 0

    def __enter__(self) -> None:
        self.uses += 1
        self._under_way += 1
        if self._under_way == 1:
            self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1
        if self._under_way == 0:
            self._idle.set()

    async def request_own(self, call: Call) -> Json:
        """`Connection.request` for our own requests, which end when the connection is retired.

        Another connection answers them then; this one may never do.
        """
        request = asyncio.ensure_future(self._request_twice(call))
        retired = asyncio.ensure_future(self._retired.wait())
        try:
            await asyncio.wait((request, retired), return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                raise ConnectionLostError("its connection was replaced")
            return request.result()
        finally:
            request.cancel()
            retired.cancel()
            await asyncio.gather(request, retired, return_exceptions=True)

    async def _request_twice(self, call: Call) -> Json:
        """Repeat the request if the exchange fails: if the server has gone, that raises CallNotSentError."""
        try:
            return await self.connection.request(call)
        except CallNotSentError:
            raise
        except ConnectionLostError:
            return await self.connection.request(Call(call.method, call.params))

    async def retire(self, drain_s: float) -> None:
        """Drain and close: wait until nothing is under way on the connection, at most `drain_s`, then close it."""
        self._retired.set()
        try:
            await self._tasks.close()
            with suppress(TimeoutError):  # calls still under way then fail with the connection
                async with asyncio.timeout(drain_s):
                    await self._idle.wait()
        finally:  # also when the daemon ends and cancels the wait
            await self.connection.close()


class LogLevel:
    """The log level of a legacy connection: the lowest that any client asked for.

    Each client gets the part that it asked for. A modern server gets the level in each request instead.
    """

    __slots__ = ("_connection", "_rank")

    def __init__(self, connection: Connection) -> None:
        known = connection.introduction
        self._connection = connection
        self._rank = len(LOG_LEVELS) if "logging" in known.capabilities else -1

    def covers(self, level: str) -> bool:
        """Whether the server sends all messages that a client with this level asked for."""
        return LOG_LEVELS.get(level, 0) >= self._rank

    async def lower(self, level: str) -> None:
        """Set the level at the server, once even if it refuses. Raises ConnectionLostError, BudgetExceededError."""
        self._rank = LOG_LEVELS.get(level, 0)
        with suppress(DownstreamError):
            await self._connection.request(Call(SET_LEVEL, {"level": level}))
