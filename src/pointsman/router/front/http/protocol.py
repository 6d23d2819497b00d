"""uvicorn's HTTP protocol with the limits that it lacks: time, size and number of what clients send, and time to read.

Which connections are admitted is decided in `connections.py`, how much may wait to be read in `unread.py`.

It stands on `HttpToolsProtocol`, which is not public API; hence the narrow pin of uvicorn, and the tests.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pointsman.config.model import Limits
from pointsman.router.front.http.answers import error_message, respond
from pointsman.router.front.http.connections import (
    PRESSURE_KEEP_ALIVE_S,
    ConnectionTable,
    Exempt,
    Verdict,
    address_key,
    is_exempt,
)
from pointsman.router.front.http.one_piece import CoalescingTransport
from pointsman.router.front.http.refusal import HttpError, overloaded
from pointsman.router.front.http.unread import UnreadBudget

HEAD_BYTES = 64 << 10
READ_S = 10.0  # in each such time a client that is behind must take `READ_BYTES`, or all that was left
READ_BYTES = 64 << 10
_UPGRADE_HEADERS = frozenset({b"connection", b"upgrade", b"http2-settings"})
_SLOW_HEAD = HttpError(408, "The request header took too long.")
_SLOW_BODY = HttpError(408, "The request body took too long.")
_LARGE_HEAD = HttpError(431, "The request header is too large.")
_BAD_REQUEST = HttpError(400, "This is not HTTP.")
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER
_TOO_MANY = {
    "full": "Too many connections are open. Try again later; the operator sets `limits.connections`.",
    "share": "Too many connections are open from this address. Close some of them, or try again later; "
    "the operator names proxies in `listen.trusted_proxies`.",
}
_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class HeadTooLargeError(Exception):
    """Raised inside the parser, which then gives up."""


def _as_json_rpc(refusal: HttpError) -> bytes:
    return error_message(None, refusal.code, refusal.message, refusal.data)


def guarded_protocol(
    limits: Callable[[], Limits],
    read_s: float = READ_S,
    worded: Callable[[HttpError], bytes] = _as_json_rpc,
    exempt: Exempt = lambda host: is_exempt(host, ()),
    unread: UnreadBudget | None = None,
) -> type[GuardedProtocol]:
    """For `uvicorn.Config(http=...)`. `limits` and `exempt` are asked for each connection, so that a reload holds.

    `worded` makes the body of a refusal that is given below ASGI.
    """
    shared = {
        "limits_now": (limits,),
        "read_s": read_s,
        "worded": (worded,),
        "exempt": (exempt,),
        "table": ConnectionTable(),
        "budget": unread or UnreadBudget(lambda: limits().unread_bytes),
    }
    return type("Guarded", (GuardedProtocol,), shared)


class GuardedProtocol(HttpToolsProtocol):
    """Fits `connections.Evictable` and `unread.Reader`."""

    limits_now: ClassVar[tuple[Callable[[], Limits]]]  # in a tuple, because a bare function would become a method
    read_s: ClassVar[float]
    worded: ClassVar[tuple[Callable[[HttpError], bytes]]]
    exempt: ClassVar[tuple[Exempt]]
    table: ClassVar[ConnectionTable]
    budget: ClassVar[UnreadBudget]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = self.limits_now[0]()
        self._verdict: Verdict | None = None  # None: not in the table, or no longer
        self.address = ""
        self.token_id: str | None = None  # whose request came last
        self._head_bytes = 0  # of a head that comes in several pieces
        self._piece_bytes = 0  # of the piece that is read now
        self._reading_head = False
        self._reading_body = False
        self._declining = False
        self._request_clock: asyncio.TimerHandle | None = None  # for the head or the body that is coming in
        self._read_clock: asyncio.TimerHandle | None = None  # for what the client still has to take
        self._goal = 0  # bytes that it must have taken by then

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base
        super().connection_made(transport)
        self._line = CoalescingTransport(transport)
        self.transport = self._line  # type: ignore[assignment]  # a transport by its shape
        self._limits = self.limits_now[0]()
        host = self.client[0] if self.client else ""
        self.address = address_key(host)
        exempt = not host or self.exempt[0](host)
        self._verdict = self.table.admit(self, self._limits.connections, exempt=exempt)
        if self._verdict == "flood":
            transport.abort()  # not even room for polite words
            return
        if self._verdict != "admitted":
            self.app = self._too_many_connections
        self._expect(self._limits.header_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_table()
        self._stop_clock()
        self._stop_read_clock()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close an idle connection in favour of a newcomer."""
        self._leave_table()
        self.transport.close()

    def cut(self) -> None:
        """Reset the connection: a plain close would leave what is unread with the kernel for minutes."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.transport.abort()

    @property
    def unread(self) -> int:
        """As memory: the transport keeps a piece whole until the last byte of it is taken."""
        unread = self._line.get_write_buffer_size()
        return max(unread, self._line.last) if unread else 0

    def _leave_table(self) -> None:
        if self._verdict is not None:
            self.table.forget(self, self._verdict)
            self._verdict = None

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._piece_bytes = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            too_large = isinstance(error.__context__, HeadTooLargeError)
            self._answer_and_close(_LARGE_HEAD if too_large else _BAD_REQUEST)
        if self._reading_head:
            self._head_bytes += self._piece_bytes
            if self._head_bytes > HEAD_BYTES:
                self._answer_and_close(_LARGE_HEAD)
        if self._request_clock is None and not self.transport.is_closing():
            self._keep_time()

    def _keep_time(self) -> None:
        if self._reading_body:
            self._expect(self._limits.body_s, self._body_is_late)
        elif self._reading_head or self._silent():
            self._expect(self._limits.header_s, self._head_is_late)

    def _silent(self) -> bool:
        """Bytes came, but neither a request nor the wait for one is under way: blank lines, for example."""
        over = self.cycle is None or self.cycle.response_complete
        return over and self.timeout_keep_alive_task is None

    # The parser's callbacks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._reading_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """In place of the base's, which would keep the blanks around a value that httptools leaves there."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._declining = self.parser.should_upgrade()
        if self._declining:
            return  # the parser stops here, and the request is read again without the offer
        if self._head_bytes + self._piece_bytes > HEAD_BYTES:
            self._measure_head()
        self._reading_body = True
        self._stop_clock()
        self.table.busy(self)
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]  # the front sets its `token_id`
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self._declining:
            return
        self._reading_body = False
        self._piece_bytes = 0  # what follows in this piece belongs to the next request
        self._stop_clock()
        super().on_message_complete()

    def _measure_head(self) -> None:
        """The head came to its end in a piece so large that it may hide a head that is too large."""
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            raise HeadTooLargeError

    # The clock of what comes in: one for a whole head or body, however many pieces it comes in

    def _expect(self, seconds: float, late: Callable[[], None]) -> None:
        self._request_clock = self.loop.call_later(seconds, late)

    def _stop_clock(self) -> None:
        if self._request_clock is not None:
            self._request_clock.cancel()
            self._request_clock = None

    def _head_is_late(self) -> None:
        self._request_clock = None
        if self._reading_head and self._nothing_under_way():
            self._answer_and_close(_SLOW_HEAD)
        else:
            self.transport.abort()

    def _body_is_late(self) -> None:
        self._request_clock = None
        if self.pipeline:  # it waits behind another request, so the delay is ours
            self._expect(self._limits.body_s, self._body_is_late)
        elif self.cycle is not None and not self.cycle.response_started:
            self._answer_and_close(_SLOW_BODY)
        else:
            self.transport.abort()

    def _nothing_under_way(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    # The clock of what goes out: a client that never reads must not hold its answer for ever

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_clock()

    def on_response_complete(self) -> None:
        if self.table.under_pressure(self._limits.connections):
            self.timeout_keep_alive = min(self.config.timeout_keep_alive, PRESSURE_KEEP_ALIVE_S)
        else:
            self.timeout_keep_alive = self.config.timeout_keep_alive
        super().on_response_complete()
        self._line.flush()
        if self.transport.get_write_buffer_size():
            self._start_read_clock()
        if self._verdict == "admitted" and self.cycle.response_complete:  # no pipelined request follows
            self.table.idle(self)

    def _start_read_clock(self) -> None:
        if self._read_clock is None:
            unread = self.transport.get_write_buffer_size()
            self._goal = self._line.written - unread + min(unread, READ_BYTES)
            self._read_clock = self.loop.call_later(self.read_s, self._check_reader)
            self.budget.behind(self)

    def _stop_read_clock(self) -> None:
        self.budget.caught_up(self)
        if self._read_clock is not None:
            self._read_clock.cancel()
            self._read_clock = None

    def _check_reader(self) -> None:
        self._read_clock = None
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self.budget.caught_up(self)
            return
        if self._line.written - unread < self._goal:
            self.cut()
        else:
            self._start_read_clock()

    # Answers below ASGI

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request again as if it had offered nothing.

        Java's client offers HTTP/2 with its first request, and httptools takes the body for the new protocol.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._answer_and_close(_BAD_REQUEST)
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _answer_and_close(self, refusal: HttpError) -> None:
        if self.transport.is_closing():
            return
        body = self.worded[0](refusal)
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (refusal.status, _PHRASES[refusal.status], len(body)) + body)
        self.transport.close()
        self._start_read_clock()

    async def _too_many_connections(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = overloaded(_TOO_MANY["share" if self._verdict == "share" else "full"])
        await respond(send, refusal.status, self.worded[0](refusal), (*refusal.headers, (b"connection", b"close")))
