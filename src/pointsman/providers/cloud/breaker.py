"""A circuit breaker: after failures a service gets no requests for a while, and then one as a probe. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]
TOLERATED = 3  # failures in a row; a single timeout opens it at once
FIRST_REST_S = 5.0
LONGEST_REST_S = 60.0


class Pass:
    """One request that was let through. Only its first outcome counts."""

    __slots__ = ("_breaker", "on_cut", "probes")

    def __init__(self, breaker: Breaker, probes: bool) -> None:
        self._breaker = breaker
        self.probes = probes  # whether it decides if the service is back
        self.on_cut: Callable[[], object] | None = None  # called when another request's timeout opens the breaker

    def succeeded(self) -> None:
        self._breaker._succeeded(self)

    def failed(self, *, timed_out: bool) -> None:
        self._breaker._failed(self, timed_out)

    def left(self) -> None:
        """It ended without an outcome. If it was the probe, another request may become the probe."""
        self._breaker._left(self)


class Breaker:
    """Closed: all requests pass. Open: none does. Half-open, once the rest is over: one passes as the probe.

    A timeout makes callers wait, so it opens the breaker at once and cancels the other requests under way; other
    failures are quick and open it at the third in a row. Each failed probe doubles the rest, up to a cap.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0  # in a row
        self._rest_s = FIRST_REST_S
        self._rests_until: float | None = None  # None: closed
        self._probe: Pass | None = None
        self._under_way: set[Pass] = set()
        self.opened = 0  # how often

    @property
    def state(self) -> BreakerState:
        if self._rests_until is None:
            return "closed"
        return "half-open" if self._probe is not None or self._clock() >= self._rests_until else "open"

    @property
    def rest_s(self) -> float:
        """How long the breaker stays open when it opens now or has just opened."""
        return self._rest_s

    def enter(self) -> Pass | None:
        """Let a request through; None: the breaker is open."""
        if self._probe is not None or self.state == "open":
            return None
        entered = Pass(self, probes=self._rests_until is not None)
        if entered.probes:
            self._probe = entered
        self._under_way.add(entered)
        return entered

    def _succeeded(self, entered: Pass) -> None:
        if not self._decides(entered):
            return
        self._failures = 0
        self._rest_s = FIRST_REST_S
        self._rests_until = self._probe = None

    def _failed(self, entered: Pass, timed_out: bool) -> None:
        if not self._decides(entered):
            return
        self._failures += 1
        if entered.probes:
            self._rest_s = min(self._rest_s * 2, LONGEST_REST_S)
        elif not timed_out and self._failures < TOLERATED:
            return
        self._rests_until = self._clock() + self._rest_s
        self._probe = None
        self.opened += 1
        if timed_out:
            self._cut()

    def _left(self, entered: Pass) -> None:
        if self._decides(entered):
            self._probe = None

    def _decides(self, entered: Pass) -> bool:
        """Whether this is the first outcome of a request that started after the breaker last opened."""
        if entered not in self._under_way:
            return False
        self._under_way.discard(entered)
        return self._rests_until is None or entered is self._probe

    def _cut(self) -> None:
        others, self._under_way = self._under_way, set()
        for other in others:
            if other.on_cut is not None:
                other.on_cut()
