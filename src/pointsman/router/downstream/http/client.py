"""An HTTP client for one server: prepared requests over pooled connections, and a check that the server is there."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Coroutine, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

import aiohappyeyeballs
from multidict import CIMultiDict
from yarl import URL

from pointsman.router.downstream.connection import (
    Authorizer,
    CallNotSentError,
    ConnectionLostError,
    NewConnectionClosedError,
    SignInNeededError,
)
from pointsman.router.downstream.http.exchange import CLOSED, HttpConnection, HttpResponse
from pointsman.router.downstream.http.failures import (
    FAILURES,
    TCP_CONNECT_S,
    ExchangeError,
    UnsentError,
    failure_reason,
)
from pointsman.router.serving.tasks import TaskSet
from pointsman.router.serving.write_queue import WriteQueue

# Below the 5 s after which uvicorn and Node drop an idle connection, so that no call is sent into a closing one.
KEEP_ALIVE_S = 4.0
RECHECKS_S = (0.25, 0.5)  # delays of the connection attempts after a failure, before the server counts as unreachable
HANDSHAKE_NUMBER = 1  # the id of the first request; not 0, which some servers treat as missing
_OURS = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding"})
_BODY = b"%sContent-Length: %d\r\n\r\n%s"  # after the head
_REFUSALS = (401, 403)
_SECOND_ADDRESS_S = 0.25  # until a host's next address is tried as well (happy eyeballs)


class HttpClient:
    """The client of one server. Ignores proxies in the environment, keeps no cookies, follows no redirects.

    It sets no deadline for answers; its callers do.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        rechecks_s: tuple[float, ...] = RECHECKS_S,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._url = URL(url)
        self._authorizer = authorizer
        self._own = _own_headers(self._url, headers)
        self._rechecks_s = rechecks_s
        self._checking: asyncio.Task[None] | None = None
        self._tasks = TaskSet()
        self._loop = asyncio.get_running_loop()
        self._unreachable: asyncio.Future[str] = self._loop.create_future()
        self._idle: dict[HttpConnection, None] = {}  # the one that was used last is the last
        self._open: set[HttpConnection] = set()
        self._writes = WriteQueue()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False
        if not self._url.host or self._url.scheme not in ("http", "https"):
            raise ValueError("no URL of an HTTP server")

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

    def send(self, head: bytes, body: bytes | None = None) -> Coroutine[Any, Any, HttpResponse]:
        """Send a request. Cancelling closes the connection, and so cancels the request.

        Returns the inner coroutine instead of awaiting it: each one more takes part in every call.

        Raises:
            NewConnectionClosedError: a new connection was closed before the request was written.
            SignInNeededError: the request was refused, and a person has to sign in first.
            CallNotSentError: no connection could be opened; the server counts as unreachable.
            ConnectionLostError: the exchange failed after the request was written.
        """
        if self._authorizer is None:
            return self._send(head, body)
        return self._send_signed_in(self._authorizer, head, body)

    async def _send_signed_in(self, authorizer: Authorizer, head: bytes, body: bytes | None) -> HttpResponse:
        try:
            return await self._send_authorized(authorizer, head, body)
        except SignInNeededError as needed:
            self.give_up(needed)
            raise

    async def _send_authorized(self, authorizer: Authorizer, head: bytes, body: bytes | None) -> HttpResponse:
        """Send with a token; once more with a new one if the server refuses it, which means that it did nothing."""
        token = await authorizer.header()
        response = await self._send(_with_token(head, token), body)
        if response.status not in _REFUSALS:
            return response
        challenge = response.text(b"www-authenticate")
        try:
            renewed = await authorizer.after_refusal(token, response.status, challenge)
        except BaseException:
            response.close()
            raise
        if renewed is None:
            return response
        response.close()
        again = await self._send(_with_token(head, renewed), body)
        if again.status == HTTPStatus.UNAUTHORIZED:
            again.close()
            raise authorizer.refused_again()
        return again

    async def _send(self, head: bytes, body: bytes | None) -> HttpResponse:
        if self._closed:
            raise CallNotSentError("its connection was closed")
        data = head + b"\r\n" if body is None else _BODY % (head, len(body), body)
        while (connection := self._take_idle()) is not None:
            try:
                return await self._exchange(connection, data)
            except UnsentError:
                continue
        try:
            connection = await self._connect()
        except FAILURES as error:
            reason = failure_reason(error)
            self.give_up(reason)
            raise CallNotSentError(reason) from None
        return await self._exchange(connection, data)

    async def _exchange(self, connection: HttpConnection, data: bytes) -> HttpResponse:
        """Raises UnsentError, if the connection was idle before; NewConnectionClosedError, ConnectionLostError."""
        was_idle = connection.idle_since > 0
        answer = connection.send(data)
        try:
            return await answer
        except UnsentError as error:
            if was_idle:
                raise
            raise NewConnectionClosedError(failure_reason(error)) from None
        except FAILURES as error:
            raise ConnectionLostError(failure_reason(error)) from None
        except BaseException:
            connection.abandon(answer)
            raise

    # ------------------------------------------------------------------ connections

    def _take_idle(self) -> HttpConnection | None:
        oldest = self._loop.time() - KEEP_ALIVE_S
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.idle_since >= oldest and connection.is_open():
                return connection
            connection.close()
        return None

    async def _connect(self) -> HttpConnection:
        """Raises OSError, ssl.SSLError."""
        url, host = self._url, self._url.raw_host
        tls = await self._loop.run_in_executor(None, _tls_context) if url.scheme == "https" else None
        async with asyncio.timeout(TCP_CONNECT_S):
            addresses = await self._loop.getaddrinfo(host, url.port, type=socket.SOCK_STREAM)
            sock = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_SECOND_ADDRESS_S, interleave=1, loop=self._loop
            )
            try:
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(self._loop, self, self._writes),
                    sock=sock,
                    ssl=tls,
                    server_hostname=host if tls is not None else None,
                )
            except BaseException:
                sock.close()
                raise
        if self._closed:
            connection.close()
            raise ExchangeError(CLOSED)
        self._open.add(connection)
        return connection

    def released(self, connection: HttpConnection) -> None:
        """Fits `Owner`."""
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle[connection] = None
        if self._reaper is None:
            self._reaper = self._loop.call_later(KEEP_ALIVE_S, self._reap)

    def lost(self, connection: HttpConnection) -> None:
        """Fits `Owner`."""
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _reap(self) -> None:
        """Close the connections that were idle for too long."""
        self._reaper = None
        oldest = self._loop.time() - KEEP_ALIVE_S
        for connection in list(self._idle):
            if connection.idle_since > oldest:
                self._reaper = self._loop.call_later(connection.idle_since - oldest, self._reap)
                return
            del self._idle[connection]
            connection.close()

    # ------------------------------------------------------------------ reachability

    async def unreachable(self) -> str:
        """Wait until the server accepts no more connections and return the reason. Raises SignInNeededError.

        One failed exchange proves nothing; a connection that cannot be opened does.
        """
        return await asyncio.shield(self._unreachable)

    def give_up(self, reason: str | SignInNeededError) -> None:
        if self._unreachable.done():
            return
        if isinstance(reason, str):
            self._unreachable.set_result(reason)
        else:
            self._unreachable.set_exception(reason)
            self._unreachable.exception()  # marked as retrieved: perhaps nobody waits for the end

    def check_reachable(self) -> None:
        """Check, after a failed exchange, whether the server still accepts connections."""
        if self._checking is None and not self._unreachable.done() and not self._closed:
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
            self._closed = True
            if self._reaper is not None:
                self._reaper.cancel()
            for connection in list(self._open):
                connection.close()
            await asyncio.sleep(0)  # the transports close their sockets in the next round of the event loop
            self.give_up("its connection was closed")


def _with_token(head: bytes, token: str | None) -> bytes:
    return head if token is None else with_headers(head, {"Authorization": token})


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
        own["Authorization"] = "Basic " + base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    for name, value in configured.items():
        if name.lower() not in _OURS:
            own[name] = value
    return own


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()  # reads the system's certificates, for some milliseconds
