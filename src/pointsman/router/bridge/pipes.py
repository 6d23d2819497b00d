"""The client's end: one JSON-RPC message a line, in on stdin, out on stdout, which carries nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import BinaryIO

from pointsman.router.downstream.stdio.lines import Line, LineAssembler
from pointsman.router.downstream.talk.decoding import id_of_undecoded

LONGEST_LINE = 256 << 20  # the gateway has its own, smaller limits and says so; this only bounds our memory
_PIECE = 1 << 18


class LineTooLongError(Exception):
    """A line over the limit was thrown away. `id` is the request's, where it could be read."""

    def __init__(self, number: int | None) -> None:
        super().__init__(f"A message of more than {LONGEST_LINE} bytes was thrown away")
        self.id = number


class Lines:
    """What the client sends."""

    def __init__(self, source: BinaryIO, limit: int = LONGEST_LINE) -> None:
        self._source = source
        self._assembler = LineAssembler(limit, self._too_long)
        self._found: asyncio.Queue[Line | LineTooLongError | None] = asyncio.Queue()

    async def read(self) -> AsyncIterator[Line | LineTooLongError]:
        """Until the client closes its end."""
        reading = asyncio.ensure_future(self._read())
        try:
            while (line := await self._found.get()) is not None:
                yield line
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            reader = asyncio.StreamReader(limit=_PIECE)
            loop = asyncio.get_running_loop()
            try:
                await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._source)
            except ValueError:  # a plain file, which is always ready
                self._feed(await asyncio.to_thread(self._source.read))
                return
            while data := await reader.read(_PIECE):
                self._feed(data)
        except OSError:
            pass  # as good as its end
        finally:
            self._feed(b"\n")  # a last line may have no end
            self._found.put_nowait(None)  # the end

    def _feed(self, data: bytes) -> None:
        for line in self._assembler.feed(data):
            if line.strip():
                self._found.put_nowait(line)

    def _too_long(self, head: bytes, tail: bytes) -> None:
        if tail:
            self._found.put_nowait(LineTooLongError(id_of_undecoded(head, tail)))


class Output:
    """What the client is told. `gone` is set when it does not listen any longer."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._writer: asyncio.StreamWriter | None = None
        self._lock = asyncio.Lock()
        self.gone = asyncio.Event()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._sink)
        except ValueError:
            return  # a plain file, which never makes one wait
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(self, message: bytes) -> None:
        """Waits while the client does not read, so that a slow one slows down what it asked for, and nothing else."""
        if self.gone.is_set():
            return
        line = message.replace(b"\n", b" ") + b"\n"  # a line break in JSON can only be space between its parts
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
