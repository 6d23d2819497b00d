"""Windows of rates: how much was used in any minute or day, in parts. Pure: the time is a parameter.

A window is a few pairs of numbers, however high its limit is: the calls of each second of the last minute, or of each
quarter of an hour of the last day. A part counts until the whole of it is older than the period, so a window never
admits more than its limit in any period, and a call waits one part longer at most than it had to.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

Window = tuple[tuple[int, int], ...]
"""The number of a part since the epoch, and the calls in it; the oldest first."""


class Period(Struct, frozen=True):
    name: str
    part_s: int
    parts: int  # before the present one

    @property
    def life_s(self) -> int:
        """How long a window has to be kept after its last call."""
        return (self.parts + 1) * self.part_s


MINUTE: Final = Period("minute", 1, 60)
DAY: Final = Period("day", 900, 96)


class Limit(Struct, frozen=True):
    """At most so many uses of one thing in one period."""

    key: str  # of its window
    most: int
    period: Period
    subject: str  # for people: whose limit it is
    use: str  # for people: what is counted
    setting: str  # the key of the configuration


class Reached(Struct, frozen=True):
    limit: Limit
    wait_s: float  # until one more is free


def take(windows: MutableMapping[str, Window], limits: Sequence[Limit], now: float) -> Reached | None:
    """Count one use for all limits; or, if one is reached, for none, and return the one that waits longest."""
    reached = None
    for limit in limits:
        wait = wait_s(windows.get(limit.key, ()), limit.most, limit.period, now)
        if wait and (reached is None or wait > reached.wait_s):
            reached = Reached(limit, wait)
    if reached is not None:
        return reached
    for limit in limits:
        windows[limit.key] = counted(windows.get(limit.key, ()), limit.period, now)
    return None


def wait_s(window: Window, most: int, period: Period, now: float) -> float:
    """The seconds until another use is free; 0: now."""
    present = current(window, period, now)
    used = sum(count for _, count in present)
    for part, count in present:
        if used < most:
            break
        used -= count
        if used < most:
            return (part + period.parts + 1) * period.part_s - now
    return 0.0


def counted(window: Window, period: Period, now: float) -> Window:
    """The window with one use more, without the parts that are over."""
    number = int(now // period.part_s)
    present = current(window, period, now)
    if present and present[-1][0] >= number:  # later than now: the clock was set back
        part, count = present[-1]
        return (*present[:-1], (part, count + 1))
    return (*present, (number, 1))


def current(window: Window, period: Period, now: float) -> Window:
    """The parts that count now. Those of a clock that was far ahead do not."""
    number = int(now // period.part_s)
    if window and number - window[0][0] <= period.parts and window[-1][0] - number <= period.parts:
        return window
    return tuple(pair for pair in window if -period.parts <= number - pair[0] <= period.parts)


def encode(window: Window) -> bytes:
    return msgspec.json.encode(window)


def decode(stored: bytes) -> Window:
    """Empty for what cannot be read: a limit must not stop all calls because its counts were lost."""
    try:
        return msgspec.json.decode(stored, type=Window)
    except msgspec.DecodeError:
        return ()
