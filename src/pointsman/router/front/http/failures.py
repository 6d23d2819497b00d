"""Unexpected exceptions: the client reads a fixed sentence, the log has the rest, a few a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Clock = Callable[[], float]  # monotonic seconds; handed in so that tests can set it

_PER_MINUTE = 10


class Failures:
    """A client that finds a way to make us fail must not be able to fill the disk with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock()
        self._logged = 0
        self._held_back = 0

    def report(self, method: str, error: BaseException) -> None:
        now = self._clock()
        if now - self._since >= 60:
            if self._held_back:
                log.error("%d more failures were not logged", self._held_back)
            self._since, self._logged, self._held_back = now, 0, 0
        if self._logged >= _PER_MINUTE:
            self._held_back += 1
            return
        self._logged += 1
        log.error("%.64r failed", method, exc_info=error)
