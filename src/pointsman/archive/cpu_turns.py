"""Turns at the processor: of the threads of this process that compute for milliseconds, one does so at a time.

The interpreter's lock lets one thread run Python. A computation of numpy or SQLite releases it and has to get it back,
which takes up to 5 ms each time while another thread runs Python, and more on a busy machine. A search releases it some
hundred times: beside a writer, it took ten times as long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """First come, first served. Thread-safe. What waits, for a remote model or a lock, must not be within a turn."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    @contextmanager
    def turn(self, *, urgent: bool = False) -> Iterator[None]:
        """`urgent`: before the others that wait, for who holds the lock of the store's writers."""
        self._take(urgent)
        try:
            yield
        finally:
            self._pass_on()

    def _take(self, urgent: bool) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            own = threading.Lock()
            own.acquire()
            (self._waiting.appendleft if urgent else self._waiting.append)(own)
        own.acquire()  # released by the one before

    def _pass_on(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


_turns = Turns()
computing = _turns.turn
"""`with computing():` around what computes for milliseconds. Not within another such block."""
