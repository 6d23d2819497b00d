"""Bounds the memory of large messages that pass through: one budget for the whole daemon.

A large answer takes a lease before the rest of it is read, for as much as it may come to need, and releases it when it
is decoded. From there to the client's transport nothing waits, so at most one answer at a time is in neither this
budget nor that of unread answers (`front/unread.py`). A large request holds a lease from before its body is read to its
end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

LARGE_BYTES = 256 << 10  # messages up to this size are not counted and never wait
LEASE_S = 60.0  # for the rest of a large message on a stream that is shared by calls and so has no deadline
_COPIES = 2  # a message is in memory as text and decoded


class Lease:
    """Bytes of the budget. Give them back with `release`, once or more often."""

    __slots__ = ("_budget", "_owner", "size")

    def __init__(self, budget: InFlight, owner: _Owner, size: int) -> None:
        self._budget = budget
        self._owner = owner
        self.size = size

    def release(self) -> None:
        if self.size:
            size, self.size = self.size, 0
            self._budget.give_back(self._owner, size)


@dataclass(slots=True, eq=False)
class _Owner:
    """A server whose answers arrive, or a token whose requests do."""

    is_server: bool
    held: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    owner: _Owner
    size: int
    granted: asyncio.Future[Lease] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class InFlight:
    """Answers may have all of it, and one server half of that, so that others are not held up by a slow one.

    Requests may have half, and one token half of that: a request holds its lease while its answer waits for one, so
    requests must never have all. Where nothing else is held, one message of any size is let through.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._answers = 0
        self._requests = 0
        self._tokens: dict[str, _Owner] = {}
        self._waiting: deque[_Waiting] = deque()

    @property
    def total(self) -> int:
        return self._answers + self._requests

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def request(self, token_id: str, size: int) -> Lease | None:
        """For a request body of `size` bytes; None where there is no room at the moment."""
        size *= _COPIES
        limit, owner = self._limit(), self._tokens.get(token_id) or _Owner(is_server=False)
        if self._requests and self._requests + size > limit // 2:
            return None
        if owner.held and owner.held + size > limit // 4:
            return None
        if self._requests and self.total + size > limit:
            return None
        self._tokens[token_id] = owner
        return self._lease(owner, size)

    def answers(self) -> AnswerMemory:
        """The share of one server."""
        return AnswerMemory(self, _Owner(is_server=True))

    def wait(self, owner: _Owner, size: int, *, first: bool) -> asyncio.Future[Lease]:
        waiting = _Waiting(owner, size)
        if first:
            self._waiting.appendleft(waiting)
        else:
            self._waiting.append(waiting)
        self._hand_out()
        return waiting.granted

    def withdraw(self, granted: asyncio.Future[Lease]) -> None:
        """It is no longer wanted, whether it was granted or not."""
        if granted.done() and not granted.cancelled():
            granted.result().release()
            return
        granted.cancel()
        self._hand_out()

    def give_back(self, owner: _Owner, size: int) -> None:
        owner.held -= size
        if owner.is_server:
            self._answers -= size
        else:
            self._requests -= size
            if not self._requests:
                self._tokens.clear()
        self._hand_out()

    def _lease(self, owner: _Owner, size: int) -> Lease:
        owner.held += size
        if owner.is_server:
            self._answers += size
        else:
            self._requests += size
        return Lease(self, owner, size)

    def _hand_out(self) -> None:
        """In order of arrival; those whose server has its share already are passed over."""
        if not self._waiting:
            return
        limit = self._limit()
        still: deque[_Waiting] = deque()
        while self._waiting:
            waiting = self._waiting.popleft()
            owner, size = waiting.owner, waiting.size
            if waiting.granted.done():
                continue
            if owner.held and owner.held + size > limit // 2:
                still.append(waiting)
            elif self._answers and self.total + size > limit:
                still.append(waiting)
                break  # smaller ones behind it must not keep it waiting indefinitely
            else:
                waiting.granted.set_result(self._lease(owner, size))
        still.extend(self._waiting)
        self._waiting = still


class AnswerMemory:
    """What the answers of one server may take of the budget."""

    def __init__(self, budget: InFlight, owner: _Owner) -> None:
        self._budget = budget
        self._owner = owner

    async def take(self, size: int, *, shared: bool = False) -> Lease:
        """For an answer of at most `size` bytes. Waits until there is room; the caller has a deadline.

        `shared`: on a stream with the answers of other calls. It goes first, because small ones may be behind it.
        """
        granted = self._budget.wait(self._owner, size * _COPIES, first=shared)
        try:
            return await granted
        except asyncio.CancelledError:
            self._budget.withdraw(granted)
            raise

    def request(self, size: int) -> asyncio.Future[Lease]:
        """As `take` for a shared stream. `withdraw` it in the end, granted or not."""
        return self._budget.wait(self._owner, size * _COPIES, first=True)

    def withdraw(self, granted: asyncio.Future[Lease]) -> None:
        self._budget.withdraw(granted)


def unshared(limit_bytes: int) -> AnswerMemory:
    """A budget of its own, for connections outside the daemon."""
    return InFlight(lambda: limit_bytes).answers()
