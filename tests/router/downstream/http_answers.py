"""Small servers that answer with given bytes, and our HTTP client of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from pointsman.router.downstream.http.answer import IncomingAnswer, read_body
from pointsman.router.downstream.http.client import HttpClient
from tests.router.downstream.http_parts import PATIENCE_S

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY = b'{"text": "hello"}'
WHOLE = OK + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def client_of(play: Play) -> AsyncIterator[HttpClient]:
    """A client of a server that reads a request head and then does what `play` says."""

    open_connections: dict[asyncio.StreamWriter, asyncio.Event] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = open_connections[writer] = asyncio.Event()
        with suppress(OSError, asyncio.IncompleteReadError):
            await play(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        del open_connections[writer]
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", {})
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield client
    finally:
        await client.close()
        server.close()
        for over in list(open_connections.values()):
            await over.wait()


def answers(*pieces: bytes, close: bool = False) -> Play:
    """Answers each request on a connection with the same pieces, in writes of their own."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if close:
                return

    return play


async def get(client: HttpClient, limit: int = 1 << 20) -> bytes:
    return bytes(await read_body(await client.send(client.head("POST"), b"{}"), IncomingAnswer(limit)))
