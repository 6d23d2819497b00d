"""The old HTTP transport (2024-11-05): one event stream for all messages in, a POST for each message out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import aiohttp
from yarl import URL

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.downstream.connection import (
    Authorizer,
    BudgetExceededError,
    CallNotSentError,
    ConnectionLostError,
    Introduction,
    OnNotification,
    SignInNeededError,
)
from pointsman.router.downstream.http.event_stream import EventStreamParser, ServerEvent
from pointsman.router.downstream.http.exchange import CLOSED, CUT_OFF, NOT_HTTP
from pointsman.router.downstream.http.failures import TCP_CONNECT_S, failure_reason, status_reason, tls_reason
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES
from pointsman.router.downstream.talk.handshake import WantedEra, negotiate
from pointsman.router.downstream.talk.multiplexer import Multiplexer
from pointsman.router.downstream.talk.question_routing import QuestionRouter
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.server_messages import FLOODED
from pointsman.router.serving.in_flight import LARGE_BYTES, LEASE_S, AnswerMemory, Lease, unshared
from pointsman.router.serving.tasks import TaskSet

_BATCH = 64  # events handled in one go, before other work gets its turn on the loop
# Some servers answer the POST only when the call is done. The call has its own deadline; this one only cleans up.
_POST_TIME = aiohttp.ClientTimeout(total=600, sock_connect=TCP_CONNECT_S)
_SESSION_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_NO_CONNECTION = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)  # raised before anything is written


async def connect_sse(
    url: str,
    headers: Mapping[str, str],
    *,
    era: WantedEra,
    limits: Limits,
    on_notification: OnNotification,
    record: ServerRecord | None = None,
    memory: AnswerMemory | None = None,
    apps: bool = False,
    authorizer: Authorizer | None = None,
) -> SseConnection:
    """Open the stream and negotiate the version. The caller limits the total time; an idle stream is never closed.
    With `apps`, support for apps is declared.

    Raises:
        ConnectionLostError: with the reason. All connections are closed then, also after a cancellation.
    """
    if era == "modern":
        raise ConnectionLostError(
            "`transport: sse` belongs to the legacy era: remove `era: modern`, or use `transport: http`"
        )
    connection = SseConnection(url, headers, limits, on_notification, record or ServerRecord(), memory, authorizer)
    try:
        await connection.open(apps)
    except BaseException:
        await connection.close()
        raise
    return connection


class SseConnection:
    """Fits `Connection`."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        limits: Limits,
        on_notification: OnNotification,
        record: ServerRecord,
        memory: AnswerMemory | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._authorizer = authorizer
        self._memory = memory or unshared(limits.in_flight_bytes)
        self._lease: Lease | None = None  # of a large message that is arriving
        self._url = URL(url)
        self._headers = dict(headers)
        self._limits = limits
        self._mux = Multiplexer(self._send, limits, on_notification, QuestionRouter(record, shared_stream=True))
        self._tasks = TaskSet()
        self._unsent = 0
        self._endpoint: asyncio.Future[URL] = asyncio.get_running_loop().create_future()
        self.introduction: Introduction
        self.request = self._mux.request
        self.ended = self._mux.ended
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=TCP_CONNECT_S),
        )

    async def open(self, apps: bool = False) -> None:
        stream = await self._get()
        self._tasks.spawn(self._listen(stream))
        await self._endpoint
        self.introduction = await negotiate(_Wire(self._mux, self._post), "legacy", 0, apps=apps)
        self._mux.introduced(self.introduction)

    async def close(self) -> None:
        self._mux.lost("its connection was closed")
        await self._tasks.close()
        await self._session.close()

    # ------------------------------------------------------------------ the stream

    async def _get(self) -> aiohttp.ClientResponse:
        # No compression: a stream that decompresses to a thousand times its size could not be bounded.
        headers = {**self._headers, "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        try:
            stream = await self._authorized(
                lambda token: self._session.get(self._url, headers=headers | token, allow_redirects=False)
            )
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLostError(_reason(error)) from None
        if stream.status != HTTPStatus.OK:
            stream.close()
            raise ConnectionLostError(status_reason(stream.status, "the request for its event stream"))
        if stream.content_type != "text/event-stream" or "Content-Encoding" in stream.headers:
            stream.close()
            raise ConnectionLostError("it did not answer with a plain event stream; is `transport: sse` right for it?")
        return stream

    async def _authorized(
        self, send: Callable[[dict[str, str]], Awaitable[aiohttp.ClientResponse]]
    ) -> aiohttp.ClientResponse:
        """As `HttpClient` does it: with a token, and once more with a new one if the server refuses it."""
        authorizer = self._authorizer
        if authorizer is None:
            return await send({})
        token = await authorizer.header()
        response = await send({} if token is None else {"Authorization": token})
        if response.status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return response
        challenge = ", ".join(response.headers.getall("WWW-Authenticate", ())) or None
        try:
            renewed = await authorizer.after_refusal(token, response.status, challenge)
        except BaseException:
            response.close()
            raise
        if renewed is None:
            return response
        response.close()
        again = await send({"Authorization": renewed})
        if again.status == HTTPStatus.UNAUTHORIZED:
            again.close()
            raise authorizer.refused_again()
        return again

    async def _listen(self, stream: aiohttp.ClientResponse) -> None:
        parser = EventStreamParser(self._limits.result_bytes)
        reason = "its event stream ended"
        clock = asyncio.timeout(None)
        try:
            async with clock:
                async for data in stream.content.iter_any():
                    await self._receive(parser.feed(data))
                    if self._lease is not None or parser.held > LARGE_BYTES:
                        await self._adjust_lease(parser.held, clock)
        except (aiohttp.ClientError, OSError) as error:
            if clock.expired():
                reason = f"it did not finish a large message within {LEASE_S:g} s"
            elif isinstance(error, aiohttp.ClientPayloadError):
                reason = f"{reason}: {_reason(error)}"
            else:
                reason = _reason(error)
        except (BudgetExceededError, ConnectionLostError) as error:
            reason = str(error)
        finally:
            stream.close()
            self._release()
        self._mux.lost(reason)
        if not self._endpoint.done():
            self._endpoint.set_exception(ConnectionLostError(reason))

    async def _adjust_lease(self, held: int, clock: asyncio.Timeout) -> None:
        """Hold a lease for a large message from its first bytes until it is decoded; without it, reading is paused."""
        if held <= LARGE_BYTES:
            self._release()
            clock.reschedule(None)
        elif self._lease is None:
            self._lease = await self._memory.take(self._limits.result_bytes, shared=True)
            clock.reschedule(asyncio.get_running_loop().time() + LEASE_S)

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    async def _receive(self, events: list[ServerEvent]) -> None:
        for number, event in enumerate(events, 1):
            if event.event == "endpoint":
                self._set_endpoint(bytes(event.data))
            elif event.event == "message" and event.data:
                if len(event.data) > OFF_LOOP_BYTES:
                    await self._mux.receive_large(event.data)
                else:
                    self._mux.receive(event.data)
            if number % _BATCH == 0:
                await asyncio.sleep(self._mux.unsolicited.pause_s())
        if self._mux.unsolicited.flooding:
            raise ConnectionLostError(FLOODED)
        if pause_s := self._mux.unsolicited.pause_s():
            await asyncio.sleep(pause_s)

    def _set_endpoint(self, data: bytes) -> None:
        if self._endpoint.done():
            return  # one per stream; a later one is ignored
        try:
            endpoint = self._url.join(URL(data.decode().strip()))
            same = endpoint.origin() == self._url.origin()
        except ValueError:
            raise ConnectionLostError("the endpoint that it named is not a URL") from None
        if not same:
            raise ConnectionLostError("it named an endpoint at another origin, which is not allowed")
        self._endpoint.set_result(endpoint)

    # ------------------------------------------------------------------ messages out

    def _send(self, data: bytes, number: int | None) -> None:
        if self._unsent + len(data) > self._limits.result_bytes:
            reason = f"it does not take its messages: more than {self._limits.result_bytes} bytes wait for it"
            self._mux.lost(reason)
            raise ConnectionLostError(reason)
        self._unsent += len(data)
        self._tasks.spawn(self._deliver(data, number))

    async def _deliver(self, data: bytes, number: int | None) -> None:
        try:
            await self._post(data)
        except CallNotSentError as error:
            self._mux.lost(error if isinstance(error, SignInNeededError) else str(error), number)
        except ConnectionLostError as lost:
            if number is not None:
                self._mux.fail(number, lost)
        finally:
            self._unsent -= len(data)

    async def _post(self, data: bytes) -> None:
        """Raises CallNotSentError: the server cannot be reached, or refused the message because it lost the session."""
        headers = {**self._headers, "Content-Type": "application/json"}
        try:
            endpoint, timeout = self._endpoint.result(), _POST_TIME
            response = await self._authorized(
                lambda token: self._session.post(
                    endpoint, data=data, headers=headers | token, allow_redirects=False, timeout=timeout
                )
            )
            status = response.status
            response.release()
        except (aiohttp.ClientError, OSError) as error:
            kind = CallNotSentError if isinstance(error, _NO_CONNECTION) else ConnectionLostError
            raise kind(_reason(error)) from None
        if status in _SESSION_GONE:
            raise CallNotSentError(f"it no longer knows our session (HTTP {status})")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise ConnectionLostError(status_reason(status, "a message"))


class _Wire:
    """The `Wire` of the handshake. A notification waits until it is delivered: no call may overtake `initialized`."""

    def __init__(self, mux: Multiplexer, post: Callable[[bytes], Awaitable[None]]) -> None:
        self._post = post
        self.request = mux.request

    async def notify(self, method: str, params: Json) -> None:
        await self._post(wire.encode({"jsonrpc": "2.0", "method": method, "params": params}))


def _reason(error: Exception) -> str:
    """As `failure_reason`, of what aiohttp raises."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return tls_reason(None)
        case aiohttp.ClientConnectorSSLError():
            return tls_reason(error.os_error)
        case aiohttp.ClientConnectorError():
            return failure_reason(error.os_error)
        case aiohttp.ServerDisconnectedError():
            return CLOSED
        case aiohttp.ClientPayloadError():
            return CUT_OFF
        case aiohttp.ClientResponseError():
            return NOT_HTTP
        case aiohttp.InvalidURL():
            return "its URL is not valid"
    return failure_reason(error)
