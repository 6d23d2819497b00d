"""The HTTP client of the bridge: one request per message, its answer parsed into messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType

import aiohttp

from pointsman.router.downstream.connection import BudgetExceededError
from pointsman.router.downstream.http.event_stream import EventStreamParser

_CONNECT_S = 5.0
_LONGEST_EVENT = 256 << 20
_EVENT_STREAM = "text/event-stream"
_ACCEPT = f"application/json, {_EVENT_STREAM}"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway listens, and the token to use there."""

    url: str  # of /mcp
    token: str = field(repr=False)


Locate = Callable[[], Awaitable[Address]]
"""Finds the running gateway, or starts one. Raises GatewayUnreachableError."""


class GatewayClientError(Exception):
    """A message got no complete answer."""


class GatewayUnreachableError(GatewayClientError):
    """No gateway is available. `str(error)` says why and what to do."""


class NotSentError(GatewayClientError):
    """Could not connect to the gateway: it has not received the message."""


class StreamCutError(GatewayClientError):
    """The connection ended before the answer was complete."""


class Answer:
    """The HTTP answer to one message."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.session_id = response.headers.get("Mcp-Session-Id")
        self.streams = response.content_type == _EVENT_STREAM

    async def messages(self) -> AsyncIterator[tuple[bytes, str | None]]:
        """Yield each message with the id of its event, if it has one. Raises StreamCutError."""
        try:
            if not self.streams:
                if body := await self._response.read():
                    yield body, None
                return
            parser = EventStreamParser(_LONGEST_EVENT)
            async for data in self._response.content.iter_any():
                for event in parser.feed(data):
                    if event.data or event.id:
                        yield bytes(event.data), event.id
        except (aiohttp.ClientError, OSError, BudgetExceededError) as error:
            raise StreamCutError from error


class GatewayClient:
    """Sends messages to the gateway. `async with GatewayClient(...) as client`."""

    def __init__(self, locate: Locate, project: str | None) -> None:
        self._locate = locate
        self._named = {} if project is None else {"X-Pointsman-Project": project}
        self._address: Address | None = None

    async def __aenter__(self) -> GatewayClient:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    @asynccontextmanager
    async def send(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> AsyncIterator[Answer]:
        """Send one request; leaving the block early closes its connection.

        If the gateway is unreachable, locate it once more: it may have restarted at another address.

        Raises:
            GatewayClientError
        """
        try:
            response = await self._request(method, headers, body)
        except NotSentError:
            self._address = None
            response = await self._request(method, headers, body)
        async with response:
            yield Answer(response)

    async def _request(self, method: str, headers: Mapping[str, str], body: bytes | None) -> aiohttp.ClientResponse:
        if self._address is None:
            self._address = await self._locate()
        address = self._address
        own = {"Authorization": f"Bearer {address.token}", "Accept": _ACCEPT, **self._named}
        if body is not None:
            own["Content-Type"] = "application/json"
        try:
            return await self._http.request(
                method, address.url, data=body, headers={**own, **headers}, allow_redirects=False
            )
        except aiohttp.ClientConnectorError as error:
            raise NotSentError from error
        except (aiohttp.ClientError, OSError) as error:
            raise StreamCutError from error
