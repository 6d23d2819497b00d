"""Sends a request to another replica and streams its response to the client, over a connection of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from starlette.types import Receive, Send

from pointsman.router.peers.replica import Replica
from pointsman.router.peers.signing import HEADER, REFUSED
from pointsman.router.serving.unix_address import SocketPathError, reachable

CONNECT_S: Final = 1.0
_PIECE: Final = 64 << 10
_MOST_HEAD: Final = 64 << 10
_OF_THE_HOP: Final = frozenset({b"connection", b"date", b"keep-alive", b"server", b"transfer-encoding"})

Headers = list[tuple[bytes, bytes]]


class UnreachableError(Exception):
    """No connection to the replica, so it got nothing."""


class RefusedError(UnreachableError):
    """The replica did not accept our signature, so it carried nothing out."""


class LostError(Exception):
    """The replica got the request and ended before it answered."""


class Request(Protocol):
    """What a client sent; the front's `HttpRequest` fits."""

    verb: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    connection: Any

    @property
    def receive(self) -> Receive: ...

    @property
    def send(self) -> Send: ...


@asynccontextmanager
async def connected(replica: Replica) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect within `CONNECT_S`; closed with the block. Raises UnreachableError."""
    kind, _, place = replica.address.partition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            if kind == "unix":
                reader, writer = await _connect_unix(Path(place))
            else:
                host, _, port = place.rpartition(":")
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_MOST_HEAD)
    except (OSError, SocketPathError) as error:  # TimeoutError is one
        raise UnreachableError from error
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_head(reader: asyncio.StreamReader, within_s: float | None = None) -> tuple[int, Headers]:
    """Return status and headers of a response. Raises LostError, RefusedError."""
    try:
        async with asyncio.timeout(within_s):
            lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        status = int(lines[0].split(b" ")[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError, IndexError) as error:
        raise LostError from error
    pairs = (line.partition(b":") for line in lines[1:] if line)
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    if (HEADER, REFUSED) in headers:
        raise RefusedError
    return status, headers


async def read_response(reader: asyncio.StreamReader, most_bytes: int) -> tuple[int, bytes]:
    """Return status and body of a response. Raises LostError (it is not whole, or too large), RefusedError."""
    status, headers = await read_head(reader)
    body = bytearray()
    try:
        async for piece in _body(reader, dict(headers)):
            body += piece
            if len(body) > most_bytes:
                raise LostError
    except (asyncio.IncompleteReadError, OSError, ValueError) as error:
        raise LostError from error
    return status, bytes(body)


async def forward(
    replica: Replica,
    request: Request,
    message: bytes,
    ended: asyncio.Future[None],
    hangs: asyncio.Future[None],
    within_s: float | None,
) -> None:
    """Send `message` to the replica, and its response to the client of `request`.

    Ends when the client disconnects, which the replica then notices as well, and when `ended` is done. When `hangs`
    is done, the replica is lost as if it had been killed. The response must begin `within_s`.

    Raises:
        UnreachableError, LostError: the client got nothing yet.
    """
    async with connected(replica) as (reader, writer):
        writer.write(message)
        answering = asyncio.ensure_future(_answer(reader, request, within_s))
        gone = asyncio.ensure_future(_until_disconnected(request.receive))
        try:
            await asyncio.wait((answering, gone, ended, hangs), return_when=asyncio.FIRST_COMPLETED)
            if hangs.done():
                writer.transport.abort()
                await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
            elif ended.done() and not gone.done():
                await _finish(answering, request)
        finally:
            for task in (answering, gone):
                task.cancel()
                with suppress(asyncio.CancelledError, LostError, UnreachableError):
                    await task


async def _answer(reader: asyncio.StreamReader, request: Request, within_s: float | None) -> None:
    status, headers = await read_head(reader, within_s)
    shown = [line for line in headers if line[0] not in _OF_THE_HOP]
    await request.send({"type": "http.response.start", "status": status, "headers": shown})
    try:
        async for piece in _body(reader, dict(headers)):
            await request.send({"type": "http.response.body", "body": piece, "more_body": True})
    except (asyncio.IncompleteReadError, OSError, ValueError):
        # The response has begun, and it must not look complete.
        if request.connection is not None:
            request.connection.cut()
        return
    await request.send({"type": "http.response.body", "body": b""})


async def _finish(answering: asyncio.Future[None], request: Request) -> None:
    """End the stream in an orderly way: this replica is stopping."""
    answering.cancel()
    with suppress(asyncio.CancelledError, LostError, UnreachableError):
        await answering
    with suppress(RuntimeError):  # it had not begun
        await request.send({"type": "http.response.body", "body": b""})


async def _body(reader: asyncio.StreamReader, head: dict[bytes, bytes]) -> AsyncIterator[bytes]:
    """Raises IncompleteReadError, OSError, ValueError."""
    if head.get(b"transfer-encoding") != b"chunked":
        async for piece in _pieces(reader, int(head.get(b"content-length", b"0"))):
            yield piece
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        async for piece in _pieces(reader, size):
            yield piece
        await reader.readexactly(2)


async def _pieces(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(piece)
        yield piece


async def _connect_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError, SocketPathError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with reachable(path) as address:
            await asyncio.get_running_loop().sock_connect(connection, address)
        return await asyncio.open_unix_connection(sock=connection, limit=_MOST_HEAD)
    except BaseException:
        connection.close()
        raise


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
