"""Many timers with the same delay for the price of one. For timers that rarely expire, such as deadlines of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TimerQueue(Generic[T]):
    """Entries expire in the order in which they were added, so one timer of the event loop serves them all.

    To add and discard an entry takes a tenth of the time that the event loop needs for a timer of its own.
    """

    __slots__ = ("_due", "_expire", "_loop", "_timer", "delay_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, expire: Callable[[T], None]) -> None:
        self.delay_s = delay_s
        self._loop = loop
        self._expire = expire
        self._due: dict[T, float] = {}  # in the order of expiry
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entry: T) -> None:
        """Call `expire` with the entry after the delay. It must not be in the queue."""
        self._due[entry] = self._loop.time() + self.delay_s
        if self._timer is None:
            self._timer = self._loop.call_later(self.delay_s, self._run)

    def discard(self, entry: T) -> None:
        """Remove the entry, which then never expires. The timer keeps running: the next entry may need it."""
        self._due.pop(entry, None)

    def _run(self) -> None:
        now = self._loop.time()
        try:
            for entry, due in list(self._due.items()):
                if due > now:
                    break
                if self._due.pop(entry, None) is not None:  # an earlier one may have discarded it
                    self._expire(entry)
        finally:
            first = next(iter(self._due.values()), None)
            self._timer = None if first is None else self._loop.call_later(max(first - now, 0.0), self._run)
