"""The log level of a legacy connection: the lowest that any client wants; each gets what it asked for out of that."""

from __future__ import annotations

from contextlib import suppress

from pointsman.core.errors import DownstreamHttpError
from pointsman.router.downstream.connection import Call, Connection
from pointsman.router.downstream.talk.questions import LEVELS

SET_LEVEL = "logging/setLevel"


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
        with suppress(DownstreamHttpError):
            await self._connection.request(Call(SET_LEVEL, {"level": level}))
