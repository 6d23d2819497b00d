"""Counts what a server sends that belongs to no call, and says when to read it more slowly, and when to give up."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.config.model import Limits

_TIMES_A_CALL = 10  # a server may say ten times as much a second that no call explains as it may within a call
_BYTES_A_SECOND = 64 << 20
_PATIENCE_S = 10


class UnsolicitedMessages:
    """What is over the rate waits in the pipe, so a flood costs its own server, and the event loop next to nothing."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._messages_a_second = limits.messages * _TIMES_A_CALL
        self._clock = clock
        self._window_end = 0.0
        self._messages_now = 0
        self._bytes_now = 0
        self._seconds_over = 0
        self.noise = 0  # not JSON, not UTF-8, or not an object
        self.answers = 0  # late, foreign or given twice
        self.messages = 0  # notifications and questions

    def charge(self, size: int, messages: int = 1) -> None:
        now = self._clock()
        if now >= self._window_end:
            flooding = self._over() and now < self._window_end + 1.0
            self._seconds_over = self._seconds_over + 1 if flooding else 0
            self._window_end = now + 1.0
            self._messages_now = self._bytes_now = 0
        self._messages_now += messages
        self._bytes_now += size

    def breather(self) -> float:
        """Seconds for which the transport should stop reading."""
        return max(0.0, self._window_end - self._clock()) if self._over() else 0.0

    @property
    def hopeless(self) -> bool:
        """It has not stopped for so long that a new connection is the better way."""
        return self._seconds_over >= _PATIENCE_S

    def _over(self) -> bool:
        return self._messages_now > self._messages_a_second or self._bytes_now > _BYTES_A_SECOND


FLOODED = f"it sent messages that no call explains, without a pause, for {_PATIENCE_S} s"
