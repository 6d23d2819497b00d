"""HTTP to one server: requests as prepared bytes over aiohttp's kept connections, and the proof that a server is gone.

aiohttp's `ClientSession` costs 0.12 ms of CPU a request, most of it for building objects that are the same each time.
So this stands one layer below it, on its connector (pool, DNS, TLS) and its parser (C, unpacking, flow control), which
costs 0.045 ms. Those are not quite public; `test_http_client.py` says what is relied on.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping

import aiohttp
from aiohttp.connector import Connection as PooledConnection
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.http.failures import FAILURES, TCP_CONNECT_S, failure_reason
from pointsman.router.serving.tasks import TaskSet

# Below the 5 s after which uvicorn and Node drop an idle connection, so that a call is not sent into one that closes.
KEEP_ALIVE_S = 4.0
DOUBTS_S = (0.25, 0.5)  # after a failure: when to look whether the server is there, before it counts as gone
HANDSHAKE_NUMBER = 1  # the id of the first request; not 0, which some servers take for none
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=TCP_CONNECT_S)
_OURS = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding"})
_STALE_CONNECTIONS = 100  # closed by the server and still in the pool: how many to pass over in one request


class HttpResponse:
    """Its connection goes back to the pool by itself when the body has ended."""

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(
        self, connection: PooledConnection, status: int, headers: CIMultiDictProxy[str], content: StreamReader
    ) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers
        self.content = content
        content.on_eof(connection.release)

    @property
    def kind(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the server says so beforehand."""
        said = self.headers.get("Content-Length", "")
        return int(said) if said.isdecimal() and "Content-Encoding" not in self.headers else None

    def close(self) -> None:
        """Nobody wants the rest: unless the body has ended, the connection is cut."""
        self._connection.close()


class HttpClient:
    """One server's client. Takes no proxies from the environment, keeps no cookies, follows no redirects.

    It sets no time limits on answers: the total deadline is the caller's.
    """

    def __init__(self, url: str, headers: Mapping[str, str], doubts_s: tuple[float, ...] = DOUBTS_S) -> None:
        self._url = URL(url)
        self._own = _own_headers(self._url, headers)
        self._doubts_s = doubts_s
        self._doubting: asyncio.Task[None] | None = None
        self._tasks = TaskSet()
        loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[str] = loop.create_future()
        self._route = aiohttp.ClientRequest("POST", self._url, loop=loop)  # tells the connector where to connect
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)

    def head(self, method: str, **protocol: str) -> bytes:
        """A request's first lines, to be kept and used again. The protocol's headers go over the operator's."""
        headers = self._own.copy()
        if method == "POST":
            headers["Content-Type"] = "application/json"
            headers["Accept"] = "application/json, text/event-stream"
        else:
            headers["Accept"] = "text/event-stream"
        headers["Accept-Encoding"] = "gzip, deflate"
        for name, value in protocol.items():
            headers[name.replace("_", "-")] = value
        first = f"{method} {self._url.raw_path_qs} HTTP/1.1\r\n".encode()
        return with_headers(first, headers)

    async def send(self, head: bytes, body: bytes | None = None) -> HttpResponse:
        """Raises ConnectionLostError. Cancelling it cuts the connection, which tells the server."""
        if self._connector.closed:
            raise ConnectionLostError("its connection was closed")
        try:
            if body is None:
                return await self._exchange(head + b"\r\n")
            return await self._exchange(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        except FAILURES as error:
            raise ConnectionLostError(failure_reason(error)) from None

    async def _exchange(self, request: bytes) -> HttpResponse:
        connection = await self._live_connection()
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            connection.close()
            raise aiohttp.ServerDisconnectedError
        try:
            protocol.set_response_params(read_until_eof=True)
            transport.write(request)
            while True:
                message, content = await protocol.read()
                if message.code >= 200:
                    break
        except BaseException:
            connection.close()
            raise
        return HttpResponse(connection, message.code, message.headers, content)

    async def _live_connection(self) -> PooledConnection:
        """A new one, or a kept one that the server has not closed.

        A kept connection that has something to read before we have said anything was closed at the other end, and the
        loop has not come round to noticing. What is sent into it is lost, and nobody could tell whether it was read.
        """
        for _ in range(_STALE_CONNECTIONS):
            connection = await self._connector.connect(self._route, [], _TIMEOUT)
            if self._url.scheme == "https" or not _readable(connection.transport):
                return connection  # TLS may have tickets to read, which mean nothing
            connection.close()
        raise aiohttp.ServerDisconnectedError

    # ------------------------------------------------------------------ is it still there?

    async def gone(self) -> str:
        """Wait until the server takes no more connections; returns the reason. One failure alone proves nothing."""
        return await asyncio.shield(self._gone)

    def give_up(self, reason: str) -> None:
        if not self._gone.done():
            self._gone.set_result(reason)

    def doubt(self) -> None:
        """An exchange failed: look whether the server still takes connections."""
        if self._doubting is None and not self._gone.done() and not self._connector.closed:
            self._doubting = self._tasks.spawn(self._look_again())

    async def _look_again(self) -> None:
        reason: str | None = None
        for pause_s in self._doubts_s:
            await asyncio.sleep(pause_s)
            reason = await self._why_unreachable()
            if reason is None:
                self._doubting = None
                return
        self.give_up(reason or "it could not be reached")

    async def _why_unreachable(self) -> str | None:
        try:
            async with asyncio.timeout(TCP_CONNECT_S):
                _, writer = await asyncio.open_connection(self._url.host, self._url.port)
        except ConnectionRefusedError:
            return "it refused the connection"
        except OSError:  # TimeoutError is one
            return "it could not be reached"
        writer.close()
        return None

    async def close(self) -> None:
        await self._tasks.close()
        await self._connector.close()
        self.give_up("its connection was closed")


def with_headers(head: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [head]
    for name, value in headers.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ConnectionLostError(f"the header `{name}` holds a line break: correct `headers` in its configuration")
        lines.append(f"{name}: {value}\r\n".encode(errors="surrogateescape"))  # as a server sent it, say its session id
    return b"".join(lines)


def _own_headers(url: URL, configured: Mapping[str, str]) -> CIMultiDict[str]:
    own: CIMultiDict[str] = CIMultiDict({"Host": url.host_port_subcomponent or ""})
    if url.user is not None:
        own["Authorization"] = aiohttp.encode_basic_auth(url.user, url.password or "")
    for name, value in configured.items():
        if name.lower() not in _OURS:
            own[name] = value
    return own


def _readable(transport: asyncio.Transport | None) -> bool:
    handle = transport.get_extra_info("socket") if transport is not None else None
    if handle is None:
        return True
    poll = select.poll()
    poll.register(handle.fileno(), select.POLLIN)
    return bool(poll.poll(0))
