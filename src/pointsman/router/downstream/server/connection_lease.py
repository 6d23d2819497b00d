"""A connection in use: knows what is under way on it, so that it can be closed when that is done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from pointsman.core.errors import DownstreamError
from pointsman.router.downstream.connection import Call, Connection, Noticed
from pointsman.router.downstream.talk.questions import LEVELS, SET_LEVEL
from pointsman.router.downstream.talk.subscriptions import Subscriptions, Watched, subscribe_again
from pointsman.router.serving.tasks import TaskSet


class ConnectionLease:
    """`with live:` around everything that needs the connection."""

    __slots__ = ("_idle", "_retired", "_tasks", "_under_way", "connection", "log_level", "subscriptions", "uses")

    def __init__(self, connection: Connection, noticed: Noticed, watched: Watched) -> None:
        self.connection = connection
        self.log_level = LogLevel(connection)
        modern = connection.introduction.era == "modern"
        self.subscriptions = Subscriptions(connection, noticed, watched) if modern else None
        listening = self.subscriptions.run if self.subscriptions else partial(subscribe_again, connection, watched)
        self._tasks = TaskSet()
        self._tasks.start("subscriptions", listening)
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.uses = 0  # so far; who looks twice can tell whether it was idle in between
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

    async def retire(self, limit_s: float) -> None:
        """Close the connection as soon as nothing is under way on it, at the latest after `limit_s`."""
        self._retired.set()
        await self._tasks.close()
        with suppress(TimeoutError):  # whoever still waits then learns from the closed connection
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        await self.connection.close()


class LogLevel:
    """Of one connection. A modern server is told the level in each request instead."""

    __slots__ = ("_connection", "_rank")

    def __init__(self, connection: Connection) -> None:
        known = connection.introduction
        self._connection = connection
        self._rank = len(LEVELS) if known.era == "legacy" and "logging" in known.capabilities else -1

    def suits(self, level: str | None) -> bool:
        """Whether the server says all that a client with this level wants to hear."""
        return level is None or LEVELS.get(level, 0) >= self._rank

    async def lower(self, level: str) -> None:
        """Tell the server; one that refuses is not told again. Raises ConnectionLostError, BudgetExceededError."""
        self._rank = LEVELS.get(level, 0)
        with suppress(DownstreamError):
            await self._connection.request(Call(SET_LEVEL, {"level": level}))
