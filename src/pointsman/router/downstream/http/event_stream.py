"""Reads `text/event-stream` piece by piece, in linear time and never holding more than one bounded event."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.router.downstream.connection import BudgetExceededError

_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. A block that sets only `id` or `retry` is given too, with empty `data`."""

    event: str  # "message" where the server named none
    data: bytes
    id: str | None  # the last id that the stream has set, as the standard has it
    retry: int | None  # milliseconds, where this block says so


class EventStreamParser:
    """Bytes in, events out. After `BudgetExceededError` the stream must be given up."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._line = bytearray()  # the line that has no end yet
        self._after_cr = False  # a line ended with CR at the border of a chunk: an LF that follows belongs to it
        self._at_start = True
        self._last_id: str | None = None
        self._reset()

    def _reset(self) -> None:
        self._data = bytearray()
        self._event = ""
        self._retry: int | None = None
        self._worth_telling = False

    @property
    def held(self) -> int:
        """Bytes of the event that has no end yet."""
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
        elif self._worth_telling:
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
            self._worth_telling = True
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._last_id = value.decode(errors="replace")
            self._worth_telling = True
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)
            self._worth_telling = True
