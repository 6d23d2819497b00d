"""Records the events of legacy sessions' streams for a while, so that a client that lost its connection can resume."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from pointsman.router.front.http.responses import numbered_event, priming_event
from pointsman.router.front.http.stream import EventStream
from pointsman.router.front.state import Clock

KEEP_S: Final = 60.0
SESSION_BYTES: Final = 16 << 20  # the largest result that a server may send still fits
ALL_BYTES: Final = 64 << 20
CHANGES: Final = 0  # the number of the stream that a GET opens; those of requests count from 1


class ReplayGapError(Exception):
    """Events of that stream have been evicted, so it cannot be resumed without a gap."""


class Event:
    __slots__ = ("data", "log", "number", "until")

    def __init__(self, log: EventLog, number: int, data: bytes, until: float) -> None:
        self.log = log
        self.number = number
        self.data = data
        self.until = until


class EventStore:
    """The recorded events of all sessions, in order of arrival, so that the oldest are evicted first."""

    def __init__(self, clock: Clock, keep_s: float = KEEP_S, most_bytes: int = ALL_BYTES) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._most_bytes = most_bytes
        self._events: deque[Event] = deque()
        self.size = 0

    def record(self, log: EventLog, number: int, data: bytes) -> Event:
        event = Event(log, number, data, self._clock() + self._keep_s)
        self._events.append(event)
        self.size += len(data)
        return event

    def evict(self) -> None:
        """Evict events that are too old or exceed the size limit."""
        now = self._clock()
        while self._events and (self._events[0].until <= now or self.size > self._most_bytes):
            oldest = self._events.popleft()
            if oldest.data:
                oldest.log.evict_oldest()

    def release(self, event: Event) -> None:
        self.size -= len(event.data)
        event.data = b""  # the entry itself is removed when it is the oldest


class SessionEvents:
    """The recorded streams of one session. `primed`: its client supports events that have an id and no data."""

    __slots__ = ("_count", "_epoch", "_logs", "primed", "size", "store")

    def __init__(self, store: EventStore, *, primed: bool, replica: str = "") -> None:
        self.store = store
        self.primed = primed
        self.size = 0
        # Distinguishes ids from before a restart, and among replicas says where the events are.
        self._epoch = f"{replica}.{secrets.token_hex(4)}" if replica else secrets.token_hex(4)
        self._count = CHANGES
        self._logs: dict[int, EventLog] = {}

    def changes(self) -> EventLog:
        """Return the log of the GET stream, one for the whole session."""
        if CHANGES not in self._logs:
            self._logs[CHANGES] = EventLog(self, CHANGES)
        return self._logs[CHANGES]

    def open(self, on_abandoned: Callable[[], None] | None = None) -> EventLog:
        """Open the log of a request's stream. `on_abandoned` is called when the time to resume it is over."""
        self._count += 1
        log = self._logs[self._count] = EventLog(self, self._count, on_abandoned)
        return log

    def id_of(self, stream: int, number: int) -> bytes:
        return b"%b-%x-%x" % (self._epoch.encode(), stream, number)

    def find(self, event_id: str) -> tuple[EventLog, int] | None:
        """Return the log that an event belongs to and its number there, or None for an id that is not valid here.

        Raises:
            ReplayGapError: a request's stream, and it cannot be resumed without a gap.
        """
        epoch, _, position = event_id.partition("-")
        stream, _, number = position.partition("-")
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
            oldest = min((log for log in self._logs.values() if log.events), key=lambda log: log.events[0].until)
            oldest.evict_oldest()

    def end(self) -> None:
        for log in list(self._logs.values()):
            log.evict_all()


def is_of_changes(event_id: str) -> bool:
    """Whether an event belongs to the stream that a GET opens, or to none: not to that of a request."""
    stream = event_id.partition("-")[2].partition("-")[0]
    return not stream.strip("0")


class EventLog:
    """One stream: its events, and the connection that reads it now, if any."""

    __slots__ = ("_abandoned", "_done", "_last", "_on_abandoned", "_reader", "_session", "_timer", "events", "number")

    def __init__(self, session: SessionEvents, number: int, on_abandoned: Callable[[], None] | None = None) -> None:
        self.number = number
        self.events: deque[Event] = deque()
        self._session = session
        self._last = 0  # the number of the newest event
        self._reader: EventStream | None = None
        self._done = False
        self._abandoned = False
        self._timer: asyncio.TimerHandle | None = None
        self._on_abandoned = on_abandoned

    @property
    def reader(self) -> EventStream | None:
        return self._reader

    def prime(self) -> None:
        """Send the reader an id before the first message, so that it can resume from there."""
        if self._reader is not None and self._session.primed:
            self._last += 1
            self._reader.put(priming_event(self._session.id_of(self.number, self._last)))

    def add(self, message: bytes) -> bool:
        """Record and send a message. Return False if the stream is abandoned or its reader too slow."""
        data = self._record(message)
        if self._reader is not None:
            return self._reader.put(data)
        return not self._abandoned

    def finish(self, message: bytes) -> None:
        """Record and send the last message."""
        data = self._record(message)
        self._done = True
        self._stop_timer()
        if self._reader is not None:
            self._reader.close(data)
            self._reader = None

    def attach(self, reader: EventStream, after: int | None = None) -> None:
        """Replay the events after number `after` to `reader`, which then receives all new ones."""
        self._stop_timer()
        self._abandoned = False
        if self._reader is not None:
            self._reader.close()
        self._reader = reader
        if after is not None:
            for event in self.events:
                if event.number > after:
                    reader.put(event.data, always=True)
        if self._done:
            reader.close()
            self._reader = None

    def detach(self, reader: EventStream, resume_s: float) -> None:
        """Close a reader that disconnected. After `resume_s` without a new one the stream is abandoned."""
        reader.close()
        if self._reader is not reader:
            return
        self._reader = None
        self._timer = asyncio.get_running_loop().call_later(resume_s, self._abandon)

    def reaches_back_to(self, number: int) -> bool:
        """Return whether no event after that number has been evicted."""
        first = self.events[0].number if self.events else self._last + 1
        return number >= first - 1

    def evict_oldest(self) -> None:
        event = self.events.popleft()
        self._session.size -= len(event.data)
        self._session.store.release(event)
        if self._done and not self.events:
            self._session.drop(self)

    def evict_all(self) -> None:
        self._stop_timer()
        while self.events:
            self.evict_oldest()

    def _record(self, message: bytes) -> bytes:
        self._last += 1
        session = self._session
        data = numbered_event(session.id_of(self.number, self._last), message)
        self.events.append(session.store.record(self, self._last, data))
        session.size += len(data)
        session.make_room()
        session.store.evict()
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
