"""A POST of `/mcp` on its way from the protocol to the front, without an ASGI cycle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.responses import Headers

if TYPE_CHECKING:
    from pointsman.router.front.http.protocol import GuardedProtocol

JSON_HEAD = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"
_EMPTY_HEAD = b"%bcontent-length: %d\r\n%b\r\n"

ServePost = Callable[["DirectCycle"], Coroutine[Any, Any, None]]
"""Serves a POST of `/mcp` and answers it in any case."""


class DirectCycle(RequestResponseCycle):
    """A POST of `/mcp` on its way to the front.

    `respond` writes a whole response at once. `send` and `receive` are uvicorn's, for streams and for bodies in pieces.
    """

    scope = cast(Any, {"method": "POST"})  # all that `send` reads of it
    logger = logging.getLogger("uvicorn.error")
    access_log = False
    default_headers = cast(list[tuple[bytes, bytes]], [])
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    waiting_for_100_continue = False

    def __init__(
        self, connection: GuardedProtocol, headers: list[tuple[bytes, bytes]], head: Head, *, keep_alive: bool
    ) -> None:
        """Set only what differs between requests: the constructor of the base costs as much as a system call."""
        self.connection = connection
        self.headers = headers
        self.head = head
        self.keep_alive = keep_alive
        self.transport = connection.transport
        self.flow = connection.flow
        self.event: asyncio.Event | None = None  # for `message_event`
        self._body_taken = False
        self.task: asyncio.Task[None] | None = None  # a reference, so that it is not collected
        self.body = b""  # type: ignore[assignment]  # a bytearray once it has a second piece

    def serve(self, scope: Any, receive: Any, send: Any) -> Coroutine[Any, Any, None]:
        """The app for `run_asgi` of the base, for a request that was pipelined."""
        serve_post = self.connection.serve_post[0]
        assert serve_post is not None
        return serve_post(self)

    def on_response(self) -> None:
        self.connection.on_response_complete()

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]  # an attribute of the base
        """Set when `receive` has something to return. Made when that is awaited, which few requests do."""
        if self.event is None:
            self.event = asyncio.Event()
            if self.body or not (self.more_body or self._body_taken):
                self.event.set()
        return self.event

    def small_body(self, limit: int) -> bytes | None:
        """Return the whole body if it has arrived and is small; None: use `receive`, which waits."""
        if self.more_body or len(self.body) > min(limit, HIGH_WATER_LIMIT):
            return None
        body, self.body = bytes(self.body), b""  # type: ignore[assignment]
        self._body_taken = True
        if self.event is not None:
            self.event.clear()
        return body

    async def respond(self, status: int, body: bytes = b"", headers: Headers = ()) -> None:
        """Write a whole response."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        more = b"".join([b"%b: %b\r\n" % header for header in headers]) if headers else b""
        if not self.keep_alive:
            more += b"connection: close\r\n"
        head = (JSON_HEAD if body else _EMPTY_HEAD) % (STATUS_LINE[status], len(body), more)
        self.connection.coalescing.write_response(head, body)
        if self.event is not None:
            self.event.set()
        if not self.keep_alive:
            self.transport.close()
        self.connection.on_response_complete()
