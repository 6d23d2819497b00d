"""The client's stdin and stdout: one JSON-RPC message per line."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import BinaryIO

from pointsman.core.lines import Line, LineAssembler, id_of_undecoded

LONGEST_LINE = 256 << 20  # bounds memory; the gateway enforces its own, smaller limits
_PIECE = 1 << 18


class LineTooLongError(Exception):
    """A line over the limit was dropped. `id` is that of the request, if it could be read."""

    def __init__(self, number: int | None) -> None:
        super().__init__(f"Dropped a message of more than {LONGEST_LINE} bytes")
        self.id = number


class Lines:
    """Reads the lines that the client sends."""

    def __init__(self, source: BinaryIO, limit: int = LONGEST_LINE) -> None:
        self._source = source
        self._assembler = LineAssembler(limit, self._too_long)
        self._lines: asyncio.Queue[Line | LineTooLongError | None] = asyncio.Queue()

    async def read(self) -> AsyncIterator[Line | LineTooLongError]:
        """Yield lines until the client closes stdin."""
        reading = asyncio.ensure_future(self._read())
        try:
            while (line := await self._lines.get()) is not None:
                yield line
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            reader = asyncio.StreamReader(limit=_PIECE)
            loop = asyncio.get_running_loop()
            if not _can_wait_for(self._source):
                self._feed(await asyncio.to_thread(self._source.read))
                return
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._source)
            while data := await reader.read(_PIECE):
                self._feed(data)
        except OSError:
            pass  # same as end of file
        finally:
            self._feed(b"\n")  # the last line may lack its newline
            self._lines.put_nowait(None)  # end of file

    def _feed(self, data: bytes) -> None:
        for line in self._assembler.feed(data):
            if line.strip():
                self._lines.put_nowait(line)

    def _too_long(self, head: bytes, tail: bytes) -> None:
        if tail:
            self._lines.put_nowait(LineTooLongError(id_of_undecoded(head, tail)))


class Output:
    """Writes to the client. `gone` is set when the client has closed stdout."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._writer: asyncio.StreamWriter | None = None
        self._lock = asyncio.Lock()
        self.gone = asyncio.Event()

    async def open(self) -> None:
        if not _can_wait_for(self._sink):
            return
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._sink)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(self, message: bytes) -> None:
        """Write one line. Waits while the client does not read, which applies backpressure to its own requests only."""
        if self.gone.is_set():
            return
        line = message.replace(b"\n", b" ") + b"\n"  # in JSON a raw line break is only whitespace
        try:
            async with self._lock:
                if self._writer is None:
                    self._sink.write(line)
                    self._sink.flush()
                    return
                self._writer.write(line)
                await self._writer.drain()
        except OSError:
            self.gone.set()


def _can_wait_for(stream: BinaryIO) -> bool:
    """Whether an event loop can wait for it. Files and /dev/null are always ready; libuv aborts the process on them."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
