"""What was said on the streams of legacy sessions, kept for a while: a client that lost its line comes back for it."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from pointsman.router.front.http.answers import numbered_event, priming_event
from pointsman.router.front.http.failures import Clock
from pointsman.router.front.http.stream import EventStream

KEEP_S: Final = 60.0
SESSION_BYTES: Final = 16 << 20  # the largest result that a server may send still fits
ALL_BYTES: Final = 64 << 20
CHANGES: Final = 0  # the number of the stream that a GET opens; those of requests count from 1


class ReplayGapError(Exception):
    """The events of that stream are kept no longer, or not all of them."""


class Event:
    __slots__ = ("data", "log", "number", "until")

    def __init__(self, log: EventLog, number: int, data: bytes, until: float) -> None:
        self.log = log
        self.number = number
        self.data = data
        self.until = until


class Store:
    """All kept events in the order in which they came, so that the oldest go first, whosever they are."""

    def __init__(self, clock: Clock, keep_s: float = KEEP_S, most_bytes: int = ALL_BYTES) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._most_bytes = most_bytes
        self._kept: deque[Event] = deque()
        self.size = 0

    def keep(self, log: EventLog, number: int, data: bytes) -> Event:
        event = Event(log, number, data, self._clock() + self._keep_s)
        self._kept.append(event)
        self.size += len(data)
        return event

    def tidy(self) -> None:
        """Let go of what is too old or too much."""
        now = self._clock()
        while self._kept and (self._kept[0].until <= now or self.size > self._most_bytes):
            oldest = self._kept.popleft()
            if oldest.data:
                oldest.log.forget_oldest()

    def release(self, event: Event) -> None:
        self.size -= len(event.data)
        event.data = b""  # the rest goes when its turn comes


class SessionEvents:
    """The streams of one session. `primed`: its client knows events that have an id and say nothing."""

    __slots__ = ("_count", "_epoch", "_logs", "primed", "size", "store")

    def __init__(self, store: Store, *, primed: bool) -> None:
        self.store = store
        self.primed = primed
        self.size = 0
        self._epoch = secrets.token_hex(4)  # ids from before a restart must not be taken for ours
        self._count = CHANGES
        self._logs: dict[int, EventLog] = {}

    def changes(self) -> EventLog:
        """The log of the stream that a GET opens, which is one for the whole session."""
        if CHANGES not in self._logs:
            self._logs[CHANGES] = EventLog(self, CHANGES)
        return self._logs[CHANGES]

    def open(self, on_abandoned: Callable[[], None] | None = None) -> EventLog:
        """The log of a request's stream. `on_abandoned` is called when its client is not expected back."""
        self._count += 1
        log = self._logs[self._count] = EventLog(self, self._count, on_abandoned)
        return log

    def id_of(self, stream: int, number: int) -> bytes:
        return b"%b-%x-%x" % (self._epoch.encode(), stream, number)

    def find(self, event_id: str) -> tuple[EventLog, int] | None:
        """The log that an event belongs to, and its number there. None: an id that says nothing here.

        Raises:
            ReplayGapError: a request's stream, and it cannot be told on without a gap.
        """
        epoch, _, place = event_id.partition("-")
        stream, _, number = place.partition("-")
        try:
            key, last = int(stream, 16), int(number, 16)
        except ValueError:
            return None
        ours = epoch == self._epoch
        if key == CHANGES:
            return (self.changes(), last) if ours else None
        log = self._logs.get(key)
        if not ours or log is None or not log.reaches_back_to(last):
            raise ReplayGapError
        return log, last

    def drop(self, log: EventLog) -> None:
        self._logs.pop(log.number, None)

    def make_room(self) -> None:
        while self.size > SESSION_BYTES:
            oldest = min((log for log in self._logs.values() if log.kept), key=lambda log: log.kept[0].until)
            oldest.forget_oldest()

    def end(self) -> None:
        for log in list(self._logs.values()):
            log.forget_all()


class EventLog:
    """One stream: its events, and the connection that reads them now, if any."""

    __slots__ = ("_abandoned", "_done", "_last", "_on_abandoned", "_reader", "_session", "_timer", "kept", "number")

    def __init__(self, session: SessionEvents, number: int, on_abandoned: Callable[[], None] | None = None) -> None:
        self.number = number
        self.kept: deque[Event] = deque()
        self._session = session
        self._last = 0  # the number of the newest event
        self._reader: EventStream | None = None
        self._done = False
        self._abandoned = False
        self._timer: asyncio.TimerHandle | None = None
        self._on_abandoned = on_abandoned

    def prime(self) -> None:
        """Tell the reader an id before there is anything to say, so that it can come back."""
        if self._reader is not None and self._session.primed:
            self._last += 1
            self._reader.put(priming_event(self._session.id_of(self.number, self._last)))

    def add(self, message: bytes) -> bool:
        """False where nobody reads and nobody is expected back, or where the reader is too slow."""
        data = self._keep(message)
        if self._reader is not None:
            return self._reader.put(data)
        return not self._abandoned

    def finish(self, message: bytes) -> None:
        """The last event."""
        data = self._keep(message)
        self._done = True
        self._stop_timer()
        if self._reader is not None:
            self._reader.close(data)
            self._reader = None

    def attach(self, reader: EventStream, after: int | None = None) -> None:
        """`reader` gets all that comes, and before that all that came after the event of that number."""
        self._stop_timer()
        self._abandoned = False
        if self._reader is not None:
            self._reader.close()
        self._reader = reader
        if after is not None:
            for event in self.kept:
                if event.number > after:
                    reader.put(event.data, always=True)
        if self._done:
            reader.close()
            self._reader = None

    def lost(self, reader: EventStream, wait_s: float) -> None:
        """The reader's connection is gone. After `wait_s` nobody is expected back."""
        reader.close()
        if self._reader is not reader:
            return
        self._reader = None
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._abandon)

    def reaches_back_to(self, number: int) -> bool:
        """Whether nothing after that number is missing."""
        first = self.kept[0].number if self.kept else self._last + 1
        return number >= first - 1

    def forget_oldest(self) -> None:
        event = self.kept.popleft()
        self._session.size -= len(event.data)
        self._session.store.release(event)
        if self._done and not self.kept:
            self._session.drop(self)

    def forget_all(self) -> None:
        self._stop_timer()
        while self.kept:
            self.forget_oldest()

    def _keep(self, message: bytes) -> bytes:
        self._last += 1
        session = self._session
        data = numbered_event(session.id_of(self.number, self._last), message)
        self.kept.append(session.store.keep(self, self._last, data))
        session.size += len(data)
        session.make_room()
        session.store.tidy()
        return data

    def _abandon(self) -> None:
        self._timer = None
        self._abandoned = True
        if self._on_abandoned is not None:
            self._on_abandoned()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
