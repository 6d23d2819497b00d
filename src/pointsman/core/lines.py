"""Splits a stream of bytes into lines, in linear time; of a line over the limit, only its two ends are kept."""

from __future__ import annotations

import re
from collections.abc import Callable

HEAD_BYTES, TAIL_BYTES = 256, 128  # of a discarded line
# Implementations write the id first (after the version) or last. Nothing inside a result can match: the head is
# anchored at the first brace, the tail at the last.
_ID_IN_HEAD = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d{1,15})\s*,')
_ID_IN_TAIL = re.compile(
    rb'[,}]\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)

Line = bytes | bytearray
TooLong = Callable[[bytes, bytes], None]
"""Called with head and tail of a line that is too long: first when the limit is exceeded (with an empty tail), and
again at its end."""


class LineAssembler:
    """Holds at most `limit_bytes` of one incomplete line."""

    def __init__(self, limit_bytes: int, too_long: TooLong) -> None:
        self._limit = limit_bytes
        self._too_long = too_long
        self._partial = bytearray()
        self._head: bytes | None = None  # of a line that is being discarded
        self._tail = b""

    @property
    def discarding(self) -> bool:
        return self._head is not None

    @property
    def held(self) -> int:
        """Bytes of the incomplete line."""
        return len(self._partial)

    def beginning(self, size: int) -> bytes:
        return bytes(self._partial[:size])

    def discard(self) -> None:
        """Discard the incomplete line, and the rest of it as it arrives."""
        self._head = bytes(self._partial[:HEAD_BYTES])
        self._tail = bytes(self._partial[-TAIL_BYTES:])
        self._partial = bytearray()
        self._too_long(self._head, b"")

    def feed(self, data: bytes) -> list[Line]:
        """The lines that `data` completes; empty ones are skipped."""
        if not self._partial and self._head is None and data.find(b"\n") == len(data) - 1:
            return [data] if 1 < len(data) <= self._limit else self._feed(data)
        return self._feed(data)

    def _feed(self, data: bytes) -> list[Line]:
        *whole, rest = data.split(b"\n")
        lines: list[Line] = []
        for piece in whole:
            line = self._end(piece)
            if line:
                lines.append(line)
        if rest:
            self._add(rest)
        return lines

    def _end(self, piece: bytes) -> Line | None:
        if self._head is None and not self._partial and len(piece) <= self._limit:
            return piece
        self._add(piece)
        if self._head is not None:
            self._too_long(self._head, self._tail)
            self._head, self._tail = None, b""
            return None
        line, self._partial = self._partial, bytearray()
        return line

    def _add(self, piece: bytes) -> None:
        if self._head is not None:
            self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
            return
        self._partial += piece
        if len(self._partial) > self._limit:
            self.discard()


def id_of_undecoded(head: bytes | bytearray, tail: bytes | bytearray) -> int | None:
    """Find the id of a message that is too large or too broken to be decoded."""
    found = _ID_IN_HEAD.match(head) or _ID_IN_TAIL.search(tail)
    return int(found[1]) if found else None
