"""Parses `text/event-stream` incrementally, in linear time and with at most one bounded event in memory."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.router.downstream.connection import BudgetExceededError

_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. A block that sets only `id` or `retry` becomes one with empty `data`."""

    event: str  # "message" by default
    data: bytes
    id: str | None  # the last id set in the stream, as the standard says
    retry: int | None  # milliseconds, if the block sets it


class EventStreamParser:
    """Turns bytes into events. After `BudgetExceededError` the stream must be closed."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._line = bytearray()  # the incomplete line
        self._after_cr = False  # the last chunk ended with CR: an LF that follows belongs to it
        self._at_start = True
        self._last_id: str | None = None
        self._reset()

    def _reset(self) -> None:
        self._data = bytearray()
        self._event = ""
        self._retry: int | None = None
        self._has_content = False

    @property
    def held(self) -> int:
        """Bytes of the incomplete event."""
        return len(self._line) + len(self._data)

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that `data` completes.

        Raises:
            BudgetExceededError: one event is larger than the limit.
        """
        if not data:
            return []
        if self._after_cr and data[0] == _LF:
            data = data[1:]
        events: list[ServerEvent] = []
        for piece in data.splitlines(keepends=True):  # of bytes: splits at CR, LF and CRLF only
            if len(self._line) + len(piece) + len(self._data) > self._limit:
                raise BudgetExceededError(f"it sent an event of more than {self._limit} bytes")
            last = piece[-1]
            if last != _LF and last != _CR:
                self._line += piece
                continue
            self._end_line(piece, events)
        self._after_cr = data.endswith(b"\r")
        return events

    def _end_line(self, piece: bytes, events: list[ServerEvent]) -> None:
        line = piece.rstrip(b"\r\n")
        if self._line:
            self._line += line
            line = bytes(self._line)
            self._line = bytearray()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if line:
            self._take_field(line)
        elif self._has_content:
            events.append(ServerEvent(self._event or "message", bytes(self._data[:-1]), self._last_id, self._retry))
            self._reset()
        else:
            self._event = ""

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data += value
            self._data += b"\n"
            self._has_content = True
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._last_id = value.decode(errors="replace")
            self._has_content = True
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)
            self._has_content = True
