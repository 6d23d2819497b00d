"""Bounds the memory of large messages in flight: one budget for the whole daemon.

A large answer takes a lease for its maximum size before the rest of it is read, and releases it when decoded. The path
from there to the client's transport never waits, so at most one answer at a time is in neither this budget nor that of
unread answers (`front/http/unread.py`). A large request holds a lease from before its body is read until it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

LARGE_BYTES = 256 << 10  # smaller messages are not counted and never wait
LEASE_S = 60.0  # for the rest of a large message on a stream that calls share, which has no deadline
_COPIES = 2  # a message is in memory twice: as text and decoded


class Lease:
    """Bytes of the budget. `release` is idempotent."""

    __slots__ = ("_budget", "_owner", "size")

    def __init__(self, budget: InFlight, owner: _Owner, size: int) -> None:
        self._budget = budget
        self._owner = owner
        self.size = size

    def release(self) -> None:
        if self.size:
            size, self.size = self.size, 0
            self._budget.give_back(self._owner, size)


class _Owner(Struct, eq=False):
    """A server that sends answers, or a token that sends requests."""

    is_server: bool
    held: int = 0


class _Waiting(Struct, eq=False):
    owner: _Owner
    size: int
    granted: asyncio.Future[Lease] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class InFlight:
    """Answers may use the whole budget, and one server half of it, so that a slow server does not block others.

    Requests may use half, and one token half of that: a request holds its lease while its answer waits for one, so
    requests must never use all. If nothing else is held, one message of any size is admitted.
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
        """Lease memory for a request body of `size` bytes; None if there is no room now."""
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
        """Return the share of one server."""
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
        """Release or cancel a lease that is no longer needed, granted or not."""
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
        """Grant leases in order of arrival, passing over servers that use their share."""
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
                break  # smaller ones behind it must not starve it
            else:
                waiting.granted.set_result(self._lease(owner, size))
        still.extend(self._waiting)
        self._waiting = still


class AnswerMemory:
    """The share of one server's answers in the budget."""

    def __init__(self, budget: InFlight, owner: _Owner) -> None:
        self._budget = budget
        self._owner = owner

    async def take(self, size: int, *, shared: bool = False) -> Lease:
        """Lease memory for an answer of at most `size` bytes. Waits until there is room; the caller has a deadline.

        `shared`: on a stream with answers to other calls. It goes first, because small answers may be behind it.
        """
        granted = self._budget.wait(self._owner, size * _COPIES, first=shared)
        try:
            return await granted
        except asyncio.CancelledError:
            self._budget.withdraw(granted)
            raise

    def request(self, size: int) -> asyncio.Future[Lease]:
        """Like `take` for a shared stream, without waiting. `withdraw` it in the end, granted or not."""
        return self._budget.wait(self._owner, size * _COPIES, first=True)

    def withdraw(self, granted: asyncio.Future[Lease]) -> None:
        self._budget.withdraw(granted)


def unshared(limit_bytes: int) -> AnswerMemory:
    """Return a separate budget, for connections outside the daemon."""
    return InFlight(lambda: limit_bytes).answers()
