"""Small writes to many connections, made one after the other instead of each in the middle of other work.

A write wakes the process that reads it. Where all cores are busy, the kernel often runs that process at once in place
of ours, and both lose their caches: with 32 connections on two cores, a call took a tenth more CPU time.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

MOST_WAITING = 32  # so that a write waits for at most that many calls, of 50 µs each


class Writer(Protocol):
    """A connection."""

    def write_now(self, data: bytes) -> None:
        """Write, unless the connection was closed meanwhile. Never raises."""
        ...


class WriteQueue:
    """Writes in the order of `add`, at the latest in the next round of the event loop."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Writer, bytes]] = []

    def add(self, writer: Writer, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting
        if not waiting:
            loop.call_soon(self.flush)
        waiting.append((writer, data))
        if len(waiting) >= MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for writer, data in waiting:
            writer.write_now(data)
