"""A small real proxy: every request goes to the next replica, on a connection of its own. No checks, no retries.

Each client connection serves one request, so that round robin goes by request, as HAProxy's does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress


class Forwarder:
    def __init__(self, ports: Sequence[int]) -> None:
        self._next: Iterator[int] = itertools.cycle(ports)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
            upstream, sender = await asyncio.open_connection("127.0.0.1", next(self._next))
            try:
                sender.write(b"\r\n".join((*lines, b"Connection: close", b"", b"")))
                sending = asyncio.ensure_future(_pipe(reader, sender))
                answering = asyncio.ensure_future(_pipe(upstream, writer))
                await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
                for task in (sending, answering):
                    task.cancel()
                await asyncio.gather(sending, answering, return_exceptions=True)
            finally:
                sender.close()
        writer.close()


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(65_536):
        target.write(piece)
        await target.drain()


@asynccontextmanager
async def forwarding(port: int, ports: Sequence[int]) -> AsyncIterator[None]:
    server = await asyncio.start_server(Forwarder(ports).serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
