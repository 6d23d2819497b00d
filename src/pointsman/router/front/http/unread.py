"""Limits the bytes of responses that clients have not read; over the budget the slowest readers are disconnected."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Reader(Protocol):
    """A client's connection with unread bytes."""

    token_id: str | None  # of its latest request

    @property
    def unread(self) -> int: ...

    def cut(self) -> None:
        """Reset the connection, so that the kernel frees its buffers too."""
        ...


class Pending(Protocol):
    """Holds bytes for a connection that accepts no more."""

    @property
    def pending_bytes(self) -> int: ...


class PendingResponse:
    """Fits `Pending`: a response that is not in a transport's buffer yet."""

    __slots__ = ("__weakref__", "pending_bytes")

    def __init__(self, size: int) -> None:
        self.pending_bytes = size


class UnreadBudget:
    """One budget for all connections.

    Sizes are looked up instead of counted, so nothing can leak and a client that keeps up costs nothing.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._readers: OrderedDict[Reader, None] = OrderedDict()  # longest behind first
        self._streams: WeakSet[Pending] = WeakSet()

    @property
    def total(self) -> int:
        return sum(reader.unread for reader in self._readers) + self._pending()

    def hold(self, stream: Pending) -> None:
        """Count the pending bytes of `stream` for as long as it exists."""
        self._streams.add(stream)

    def behind(self, reader: Reader) -> None:
        """Register a client that has not read all that was written."""
        self._readers.setdefault(reader)
        self.enforce(reader)

    def caught_up(self, reader: Reader) -> None:
        self._readers.pop(reader, None)

    def enforce(self, newest: Reader | None = None) -> None:
        """Disconnect readers until the rest fits: those of the token with the most bytes, longest behind first.

        `newest` stays: it had no time to read yet, and a single response has a limit of its own.
        """
        excess = self.total - self._limit()
        if excess <= 0:
            return
        pending_each = self._pending() // max(1, len(self._readers))  # their connections are not known here
        while excess > 0 and (victim := self._victim(newest)) is not None:
            excess -= victim.unread + pending_each
            del self._readers[victim]
            victim.cut()

    def _victim(self, newest: Reader | None) -> Reader | None:
        unread: Counter[str | None] = Counter()
        for reader in self._readers:
            if reader is not newest:
                unread[reader.token_id] += reader.unread
        if not unread:
            return None
        largest = max(unread, key=unread.__getitem__)
        return next(reader for reader in self._readers if reader.token_id == largest and reader is not newest)

    def _pending(self) -> int:
        return sum(stream.pending_bytes for stream in self._streams)
