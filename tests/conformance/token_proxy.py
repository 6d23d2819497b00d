"""Adds the Authorization header to every request on its way to a gateway: the suite has no option for one.

Nothing else is touched, in either direction, and nothing is held back: streams stay streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

END_OF_HEAD = b"\r\n\r\n"
LEFT = (asyncio.IncompleteReadError, ConnectionError)  # one side closed


class TokenProxy:
    """Bound before the gateway starts, so that the gateway can be told the name under which it will be called."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]
        self.target: tuple[int, str] | None = None  # port and token

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def hosts(self) -> list[str]:
        return [f"127.0.0.1:{self.port}", f"localhost:{self.port}"]


@asynccontextmanager
async def token_proxy() -> AsyncIterator[TokenProxy]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert proxy.target is not None, "called before the gateway was ready"
        port, token = proxy.target
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        answers = asyncio.create_task(_copy(back_reader, writer))
        try:
            with suppress(*LEFT):
                await _requests(reader, back_writer, f"Authorization: Bearer {token}\r\n".encode())
        finally:
            back_writer.close()  # the gateway must notice at once that its client is gone
            await answers

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = TokenProxy(server)
    async with server:
        yield proxy


async def _requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, header: bytes) -> None:
    while True:
        head = await reader.readuntil(END_OF_HEAD)
        request_line, _, headers = head.partition(b"\r\n")
        writer.write(request_line + b"\r\n" + header + headers)
        if length := _content_length(headers):
            writer.write(await reader.readexactly(length))
        await writer.drain()


def _content_length(headers: bytes) -> int:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
        assert name.lower() != b"transfer-encoding", "the suite sends no chunks"
    return 0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(*LEFT):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
