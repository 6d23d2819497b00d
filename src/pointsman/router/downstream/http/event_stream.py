"""Parses `text/event-stream` incrementally, in linear time and with at most one bounded event in memory."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.large_block import SMALL_BYTES, LargeBlock
from pointsman.router.downstream.connection import BudgetExceededError

_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10
_NAME_BYTES = 6  # of the longest name of a field, and the colon behind it


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. A block that sets only `id` or `retry` becomes one with empty `data`."""

    event: str  # "message" by default
    data: bytes | memoryview  # a view of a large one
    id: str | None  # the last id set in the stream, as the standard says
    retry: int | None  # milliseconds, if the block sets it


class EventStreamParser:
    """Turns bytes into events. After `BudgetExceededError` the stream must be closed."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._line = LargeBlock()  # the incomplete line
        self._after_cr = False  # the last chunk ended with CR: an LF that follows belongs to it
        self._at_start = True
        self._last_id: str | None = None
        self._reset()

    def _reset(self) -> None:
        self._data = bytearray()  # values, each with a line end
        self._large = memoryview(b"")  # a large value, as long as it is the only one
        self._event = ""
        self._retry: int | None = None
        self._has_content = False

    @property
    def held(self) -> int:
        """Bytes of the incomplete event."""
        return len(self._line) + len(self._data) + len(self._large)

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
            if self.held + len(piece) > self._limit:
                raise BudgetExceededError(f"it sent an event of more than {self._limit} bytes")
            last = piece[-1]
            if last != _LF and last != _CR:
                self._line.add(piece)
                continue
            self._end_line(piece, events)
        self._after_cr = data.endswith(b"\r")
        return events

    def _end_line(self, piece: bytes, events: list[ServerEvent]) -> None:
        line: bytes | memoryview = piece.rstrip(b"\r\n")
        if self._line:
            self._line.add(line)
            line, self._line = self._line.view(), LargeBlock()
            if len(line) <= SMALL_BYTES:
                line = bytes(line)
        if self._at_start:
            self._at_start = False
            if line[: len(_BOM)] == _BOM:
                line = line[len(_BOM) :]
        if line:
            self._take_field(line)
        elif self._has_content:
            data = self._large or bytes(self._data[:-1])
            events.append(ServerEvent(self._event or "message", data, self._last_id, self._retry))
            self._reset()
        else:
            self._event = ""

    def _take_field(self, line: bytes | memoryview) -> None:
        name, colon, _ = bytes(line[:_NAME_BYTES]).partition(b":")
        value = line[len(name) + len(colon) :]
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._add_data(value)
            self._has_content = True
        elif name == b"event":
            self._event = str(value, "utf-8", "replace")
        elif name == b"id" and b"\0" not in bytes(value):
            self._last_id = str(value, "utf-8", "replace")
            self._has_content = True
        elif name == b"retry" and len(value) < 10 and bytes(value).isdigit():
            self._retry = int(value)
            self._has_content = True

    def _add_data(self, value: bytes | memoryview) -> None:
        if isinstance(value, memoryview) and not self._data and not self._large:
            self._large = value  # nearly always the whole answer, which is not copied
            return
        for one in (self._large, value) if self._large else (value,):
            self._data += one
            self._data += b"\n"
        self._large = memoryview(b"")
