"""An HTTP client for one server: prepared requests over aiohttp's pooled connections, and a check that it is there.

aiohttp's `ClientSession` costs 0.12 ms of CPU per request, most of it for objects that are the same each time. This
client works one layer below, on the connector (pool, DNS, TLS) and the parser (C, decompression, flow control), for
0.045 ms. Those APIs are not quite public; `test_http_client.py` pins what this client relies on.
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

from pointsman.router.downstream.connection import CallNotSentError, ConnectionLostError
from pointsman.router.downstream.http.failures import FAILURES, TCP_CONNECT_S, failure_reason
from pointsman.router.serving.tasks import TaskSet

# Below the 5 s after which uvicorn and Node drop an idle connection, so that no call is sent into a closing one.
KEEP_ALIVE_S = 4.0
RECHECKS_S = (0.25, 0.5)  # delays of the connection attempts after a failure, before the server counts as unreachable
HANDSHAKE_NUMBER = 1  # the id of the first request; not 0, which some servers treat as missing
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=TCP_CONNECT_S)
_OURS = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding"})
_BODY = b"%sContent-Length: %d\r\n\r\n%s"  # after the head
_STALE_CONNECTIONS = 100  # how many pooled connections that the server has closed one request may skip


class HttpResponse:
    """A response. Its connection returns to the pool when the body has ended."""

    __slots__ = ("_connection", "content", "headers", "kind", "status")

    def __init__(
        self, connection: PooledConnection, status: int, headers: CIMultiDictProxy[str], content: StreamReader
    ) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers
        self.kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()  # media type without parameters
        self.content = content
        content.on_eof(connection.release)

    @property
    def length(self) -> int | None:
        """The announced length of the body, if there is one."""
        length = self.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() and "Content-Encoding" not in self.headers else None

    def close(self) -> None:
        """Discard the rest: unless the body has ended, the connection is closed."""
        self._connection.close()


class HttpClient:
    """The client of one server. Ignores proxies in the environment, keeps no cookies, follows no redirects.

    It sets no deadline for answers; its callers do.
    """

    def __init__(self, url: str, headers: Mapping[str, str], rechecks_s: tuple[float, ...] = RECHECKS_S) -> None:
        self._url = URL(url)
        self._own = _own_headers(self._url, headers)
        self._rechecks_s = rechecks_s
        self._checking: asyncio.Task[None] | None = None
        self._tasks = TaskSet()
        loop = asyncio.get_running_loop()
        self._unreachable: asyncio.Future[str] = loop.create_future()
        self._route = aiohttp.ClientRequest("POST", self._url, loop=loop)  # where the connector connects to
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)

    def head(self, method: str, **protocol: str) -> bytes:
        """The head of a request, to be reused. The protocol's headers override the operator's."""
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
        """Send a request. Cancelling closes the connection, and so cancels the request.

        Raises:
            CallNotSentError: no connection could be opened, so nothing was sent. The server counts as unreachable.
            ConnectionLostError: the exchange failed after the request was written.
        """
        if self._connector.closed:
            raise CallNotSentError("its connection was closed")
        try:
            connection = await self._live_connection()
        except FAILURES as error:
            reason = failure_reason(error)
            self.give_up(reason)
            raise CallNotSentError(reason) from None
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None:
                raise aiohttp.ServerDisconnectedError  # noqa: TRY301 - handled below like aiohttp's own
            protocol.set_response_params(read_until_eof=True)
            transport.write(head + b"\r\n" if body is None else _BODY % (head, len(body), body))
            message, content = await protocol.read()
            while message.code < 200:
                message, content = await protocol.read()
        except BaseException as error:
            connection.close()
            if isinstance(error, FAILURES):
                raise ConnectionLostError(failure_reason(error)) from None
            raise
        return HttpResponse(connection, message.code, message.headers, content)

    async def _live_connection(self) -> PooledConnection:
        """A new connection, or a pooled one that the server has not closed.

        A pooled connection that is readable before we send anything was closed by the server, and the event loop has
        not processed that yet. A request sent into it would be lost, and could not be retried safely.
        """
        for _ in range(_STALE_CONNECTIONS):
            connection = await self._connector.connect(self._route, [], _TIMEOUT)
            if self._url.scheme == "https" or not _readable(connection.transport):
                return connection  # TLS may have session tickets to read
            connection.close()
        raise aiohttp.ServerDisconnectedError

    # ------------------------------------------------------------------ reachability

    async def unreachable(self) -> str:
        """Wait until the server accepts no more connections and return the reason.

        One failed exchange proves nothing; a connection that cannot be opened does.
        """
        return await asyncio.shield(self._unreachable)

    def give_up(self, reason: str) -> None:
        if not self._unreachable.done():
            self._unreachable.set_result(reason)

    def check_reachable(self) -> None:
        """Check, after a failed exchange, whether the server still accepts connections."""
        if self._checking is None and not self._unreachable.done() and not self._connector.closed:
            self._checking = self._tasks.spawn(self._recheck())

    async def _recheck(self) -> None:
        reason: str | None = None
        for pause_s in self._rechecks_s:
            await asyncio.sleep(pause_s)
            reason = await self._why_unreachable()
            if reason is None:
                self._checking = None
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
        try:
            await self._tasks.close()
        finally:
            await self._connector.close()
            self.give_up("its connection was closed")


def with_headers(head: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [head]
    for name, value in headers.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ConnectionLostError(f"the header `{name}` holds a line break: correct `headers` in its configuration")
        # A value may be as a server sent it: its session id, for example.
        lines.append(f"{name}: {value}\r\n".encode(errors="surrogateescape"))
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
