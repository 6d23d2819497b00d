"""Counts what a server sends that belongs to no call, and says when to read it more slowly."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.config.model import Limits

_BYTES_A_SECOND = 64 << 20


class Stray:
    """A server may say `limits.messages` things a second that no call explains; the rest waits in the pipe.

    So a flood costs its own server, and the event loop next to nothing.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._messages_a_second = limits.messages
        self._clock = clock
        self._window_end = 0.0
        self._messages_now = 0
        self._bytes_now = 0
        self.noise = 0  # not JSON, not UTF-8, or not an object
        self.answers = 0  # late, foreign or given twice
        self.messages = 0  # notifications and questions

    def charge(self, size: int, messages: int = 1) -> None:
        now = self._clock()
        if now >= self._window_end:
            self._window_end = now + 1.0
            self._messages_now = self._bytes_now = 0
        self._messages_now += messages
        self._bytes_now += size

    def breather(self) -> float:
        """Seconds for which the transport should stop reading."""
        if self._messages_now <= self._messages_a_second and self._bytes_now <= _BYTES_A_SECOND:
            return 0.0
        return max(0.0, self._window_end - self._clock())
