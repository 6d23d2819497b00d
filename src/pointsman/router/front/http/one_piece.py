"""A transport that writes the head of an answer together with its body."""

from __future__ import annotations

import asyncio
from typing import Any

_LARGE_BYTES = 256 << 10


class CoalescingTransport:
    """Fits `asyncio.Transport` by its shape.

    uvicorn says head and body one after the other, and uvloop would write each at once, by a system call of its own.
    """

    __slots__ = ("_head", "_transport", "get_write_buffer_size", "is_closing", "last", "written")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.written = 0  # bytes, in all
        self.last = 0  # bytes of the last write
        self.is_closing = transport.is_closing  # these two are asked in each request
        self.get_write_buffer_size = transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        if self._head and len(data) > _LARGE_BYTES:
            head, self._head = self._head, b""
            self.written += len(head)
            self._transport.write(head)  # a copy of the body would cost more than a system call
        elif self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self.last = len(data)
        self.written += self.last
        self._transport.write(data)

    def flush(self) -> None:
        """For heads that nothing follows."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
