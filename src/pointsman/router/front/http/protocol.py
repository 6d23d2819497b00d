"""uvicorn's HTTP protocol with limits: for the time and size of requests, for slow readers, and for connections.

`connections.py` decides which connections are admitted, `unread.py` how many unread bytes may accumulate.

Calls, which are POSTs of `/mcp`, go straight from here to the front as a `DirectCycle`. ASGI's scope, messages and
header checks would add a fifth to the cost of a call. One that repeats the head of the connection's last call skips the
parser, too (`request_head.py`). uvicorn serves all other requests.

Builds on `HttpToolsProtocol`, which is not public API: hence the narrow pin of uvicorn, and the tests.
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
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from pointsman.config.model import Limits
from pointsman.router.front.http.connections import (
    PRESSURE_KEEP_ALIVE_S,
    ConnectionTable,
    Exempt,
    Verdict,
    address_key,
    is_exempt,
)
from pointsman.router.front.http.direct_cycle import JSON_HEAD, DirectCycle, ServePost
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.request_head import RequestHead
from pointsman.router.front.http.responses import (
    HEAD_BYTES,
    HEAD_LINES,
    LARGE_HEAD,
    NOT_HTTP,
    SLOW_BODY,
    SLOW_HEAD,
    CoalescingTransport,
    HttpError,
    overloaded,
    respond,
)
from pointsman.router.front.http.unread import UnreadBudget
from pointsman.router.serving.timer_queue import TimerQueue
from pointsman.router.serving.write_queue import WriteQueue

MOST_QUEUED = 256  # requests of a connection behind the one that is served; each takes 2 KB, however short it is
READ_S = 10.0  # in each such interval a slow reader must take `READ_BYTES`, or the rest if that is less
READ_BYTES = 64 << 10
_UPGRADE_HEADERS = frozenset({b"connection", b"upgrade", b"http2-settings"})
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER
_TOO_MANY = {
    "full": "Too many connections are open. Try again later; the operator sets `limits.connections`.",
    "share": "Too many connections are open from this address. Close some of them, or try again later; "
    "the operator names proxies in `listen.trusted_proxies`.",
}
_DIRECT_URL = b"/mcp"
_EMPTY_SCOPE: Any = {"type": "http", "method": "GET", "headers": []}  # of an idle connection


class TooManyQueuedError(Exception):
    """A client sent more requests than may wait behind the one that is served."""


class HeadTooLargeError(Exception):
    """Raised inside the parser, which then stops."""


def guarded_protocol(
    limits: Callable[[], Limits],
    read_s: float = READ_S,
    error_body: Callable[[HttpError], bytes] = HttpError.body,
    exempt: Exempt = lambda host: is_exempt(host, ()),
    unread: UnreadBudget | None = None,
    serve_post: ServePost | None = None,
) -> type[GuardedProtocol]:
    """Return a class for `uvicorn.Config(http=...)`.

    `limits` and `exempt` are called for each connection, so that a reload takes effect. `error_body` encodes errors
    that are answered below ASGI. Without `serve_post`, the ASGI app serves all requests.
    """
    shared = {
        "serve_post": (serve_post,),
        "keep_alive": {},
        "limits_now": (limits,),
        "read_s": read_s,
        "error_body": (error_body,),
        "exempt": (exempt,),
        "table": ConnectionTable(),
        "writes": WriteQueue(),
        "budget": unread or UnreadBudget(lambda: limits().unread_bytes),
    }
    return type("Guarded", (GuardedProtocol,), shared)


class GuardedProtocol(HttpToolsProtocol):
    """Fits `connections.Evictable` and `unread.Reader`."""

    limits_now: ClassVar[tuple[Callable[[], Limits]]]  # in a tuple, because a bare function would become a method
    read_s: ClassVar[float]
    error_body: ClassVar[tuple[Callable[[HttpError], bytes]]]
    exempt: ClassVar[tuple[Exempt]]
    serve_post: ClassVar[tuple[ServePost | None]]
    keep_alive: ClassVar[dict[bool, TimerQueue[GuardedProtocol]]]  # whether there are many connections -> idle ones
    table: ClassVar[ConnectionTable]
    writes: ClassVar[WriteQueue]
    budget: ClassVar[UnreadBudget]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = self.limits_now[0]()
        self._many = 0.0  # connections, from which on idle ones are closed sooner
        self._verdict: Verdict | None = None  # None: not in the table, or no longer
        self.address = ""
        self.token_id: str | None = None  # of the latest request
        self.identity: Any = None  # set and read by the front
        self._head_bytes = 0  # of a head that comes in several pieces
        self._piece_bytes = 0  # of the piece that is read now
        self._piece_ends_message = False  # so that its bytes do not all belong to the head or body that it leaves open
        self._head_is_behind = False  # it begins in a piece with the end of another message, so it has to be measured
        self._discards = False  # what still comes; the connection closes once its last whole request is answered
        self._since_body = 0  # bytes since the last ones of a body: framing, such as trailers
        self._has_body = False  # the piece has bytes of a body, or the end of a head
        self._known: RequestHead | None = None
        self._running: Any = None  # the cycle that is served, once others have been queued behind it
        self._reading_head = False
        self._reading_body = False
        self._declining = False
        self._request_timer: asyncio.TimerHandle | None = None  # for the head or body being received
        self._read_timer: asyncio.TimerHandle | None = None  # for a client that reads slowly
        self._kept: TimerQueue[GuardedProtocol] | None = None  # closes the connection; None: it is not idle
        self._goal = 0  # bytes that the client must have read when the timer fires

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base
        super().connection_made(transport)
        self.coalescing = CoalescingTransport(transport, self.loop, self.writes, self._start_read_timer)
        self.transport = self.coalescing  # type: ignore[assignment]  # a transport by its shape
        self._limits = self.limits_now[0]()
        self._many = self._limits.connections / 2
        host = self.client[0] if self.client else ""
        self.address = address_key(host)
        exempt = not host or self.exempt[0](host)
        self._verdict = self.table.admit(self, self._limits.connections, exempt=exempt)
        if self._verdict == "flood":
            transport.abort()  # a response would cost too much
            return
        if self._verdict != "admitted":
            self.app = self._too_many_connections
        self._expect(self._limits.header_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_table()
        self._stop_keep_alive()
        self._stop_request_timer()
        self._stop_read_timer()
        for cycle in (self._running, *(queued for queued, _ in self.pipeline)):  # the base tells the last one only
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close an idle connection to make room for a new one."""
        self._leave_table()
        self.transport.close()

    def cut(self) -> None:
        """Reset the connection: after a plain close the kernel would buffer unread bytes for minutes."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.transport.abort()

    @property
    def unread(self) -> int:
        """Return the bytes in memory: the transport keeps a buffer whole until its last byte is sent."""
        unread = self.coalescing.get_write_buffer_size()
        return max(unread, self.coalescing.last) if unread else 0

    def _leave_table(self) -> None:
        self._known = None
        if self._verdict is not None:
            self.table.forget(self, self._verdict)
            self._verdict = None

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        is_between_requests = False  # all before are answered, and the parser has seen no byte of the next
        if self._kept is not None:
            self._kept.discard(self)
            self._kept = None
            is_between_requests = not self._reading_head and not self._reading_body
            if is_between_requests and self._known is not None and self._begin_known(self._known, data):
                return
        before = self.cycle
        self._parse(data)
        if is_between_requests and self.cycle is not before:
            self._remember_head(data)

    def _parse(self, data: bytes) -> None:
        self._piece_bytes = len(data)
        self._has_body = self._piece_ends_message = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            too_large = isinstance(error.__context__, HeadTooLargeError)
            self._answer_and_close(LARGE_HEAD if too_large else NOT_HTTP)
        if self._reading_head and not self._piece_ends_message:
            self._head_bytes += self._piece_bytes
            if self._head_bytes > HEAD_BYTES:
                self._answer_and_close(LARGE_HEAD)
        elif self._reading_body:
            self._since_body = 0 if self._has_body else self._since_body + self._piece_bytes
            if self._since_body > HEAD_BYTES:
                self._answer_and_close(LARGE_HEAD)
        if self._request_timer is not None or self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if self._reading_body:
            self._expect(self._limits.body_s, self._body_is_late)
        elif self._reading_head or (idle and self._kept is None):
            # Bytes such as blank lines start no request, but have stopped the keep-alive timer.
            self._expect(self._limits.header_s, self._head_is_late)

    # A call with the head of the last one

    def _begin_known(self, known: RequestHead, data: bytes) -> bool:
        """Begin a call without the parser; return False if `data` is anything else than one whole call."""
        body = known.repeated.body_in(data)
        if body is None or len(body) > HIGH_WATER_LIMIT:
            return False
        serve_post = self.serve_post[0]
        assert serve_post is not None
        self.table.idle.pop(self, None)
        cycle = self.cycle = DirectCycle(self, known.headers, known.head, keep_alive=True)
        cycle.body, cycle.more_body = body, False  # type: ignore[assignment]  # as `on_body` does
        cycle.task = self.loop.create_task(serve_post(cycle))
        return True

    def keeps(self, head: Head) -> bool:
        """Whether `head` is the one that is kept for calls that repeat it."""
        return self._known is not None and self._known.head is head

    def _remember_head(self, data: bytes) -> None:
        """Keep the head of a call that came in one piece."""
        cycle = self.cycle
        if type(cycle) is DirectCycle and cycle.keep_alive and not cycle.more_body:
            self._known = RequestHead.of(data, cycle.headers, cycle.head)
        else:
            self._known = None

    # The parser's callbacks

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.head: Head = {}
        self._head_bytes = 0
        self._head_is_behind = self._piece_ends_message
        self._reading_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Override the base's method, which keeps the blanks around a value, and takes trailers for headers."""
        if self._reading_body:
            return
        if len(self.headers) >= HEAD_LINES:
            raise HeadTooLargeError
        name, value = name.lower(), value.strip(b" \t")
        self.headers.append((name, value))
        self.head[name] = value

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._declining = self.parser.should_upgrade()
        if self._declining:
            return  # the parser stops here, and the request is parsed again without the upgrade headers
        if len(self.pipeline) >= MOST_QUEUED:
            raise TooManyQueuedError
        if self._head_is_behind or self._head_bytes + self._piece_bytes > HEAD_BYTES:
            self._measure_head()
        self._reading_body = self._has_body = True
        self.expect_100_continue = b"expect" in self.head and self.head[b"expect"].lower() == b"100-continue"
        if self._request_timer is not None:
            self._stop_request_timer()
        self.table.idle.pop(self, None)
        if not self.pipeline and self.cycle is not None and not self.cycle.response_complete:
            self._running = self.cycle
        serve_post = self.serve_post[0]
        direct = self.url == _DIRECT_URL and self._verdict == "admitted" and self.parser.get_method() == b"POST"
        if not direct or serve_post is None:
            self._begin_asgi()
            return
        # HTTP/1.0 keeps a connection only if a header asks for it, and uvicorn not even then.
        asked = b"connection" in self.head
        keep_alive = self.parser.should_keep_alive() and not (asked and self.parser.get_http_version() == "1.0")
        before, cycle = self.cycle, DirectCycle(self, self.headers, self.head, keep_alive=keep_alive)
        cycle.waiting_for_100_continue = self.expect_100_continue
        self.cycle = cycle
        self.headers, self.head = [], {}  # the cycle has them, and releases them
        if before is None or before.response_complete:
            cycle.task = self.loop.create_task(serve_post(cycle))
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, cycle.serve))

    def _begin_asgi(self) -> None:
        """Let uvicorn serve the request; its scope is built only here, because direct requests need none."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]  # the front sets its `token_id`
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_body = True
        cycle = self.cycle
        if cycle.body or type(cycle) is not DirectCycle or cycle.response_complete:
            super().on_body(body)
            return
        cycle.body = body  # type: ignore[assignment]  # not copied: most bodies come in one piece
        if cycle.event is not None:
            cycle.event.set()
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        if self._declining:
            return
        self._reading_body = False
        self._piece_ends_message = True
        if self._request_timer is not None:
            self._stop_request_timer()
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            if type(cycle) is not DirectCycle or cycle.event is not None:
                cycle.message_event.set()

    def _measure_head(self) -> None:
        """Measure the head alone: it was received together with other bytes."""
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            raise HeadTooLargeError

    # The request timer: one for a whole head or body, however many pieces it arrives in

    def _expect(self, seconds: float, late: Callable[[], None]) -> None:
        self._request_timer = self.loop.call_later(seconds, late)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _head_is_late(self) -> None:
        self._request_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect(self._limits.header_s, self._head_is_late)  # a whole call is served before it
        elif self._reading_head:
            self._answer_and_close(SLOW_HEAD)
        else:
            self.transport.abort()

    def _body_is_late(self) -> None:
        self._request_timer = None
        if self.pipeline:  # it is queued behind another request, so the client did not cause the delay
            self._expect(self._limits.body_s, self._body_is_late)
        elif self.cycle is not None and not self.cycle.response_started:
            self._answer_and_close(SLOW_BODY)
        else:
            self.transport.abort()

    # The read timer: a client that never reads must not keep its response in memory

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def on_response_complete(self) -> None:
        """Override the base's method, which starts a timer of the event loop for each response."""
        self.server_state.total_requests += 1
        if self.coalescing.head:
            self.coalescing.flush()
        if self.transport.get_write_buffer_size():
            self._start_read_timer()
        if not self.transport.is_closing():
            if self.pipeline:
                self._running, app = self.pipeline.pop()
                self._start_asgi_task(self._running, app)
                if not self.pipeline and self.flow.read_paused:
                    self.flow.resume_reading()
            else:
                if self.flow.read_paused:
                    self.flow.resume_reading()
                pressed = self.table.total >= self._many
                if self._kept is not None:
                    self._stop_keep_alive()
                self._kept = self.keep_alive.get(pressed) or self._new_keep_alive(pressed)
                self._kept.add(self)
        if self.cycle.response_complete:  # no pipelined request follows
            self._running = None
            self._release_head()
            if self._verdict == "admitted":
                self.table.idle[self] = None

    def _release_head(self) -> None:
        """Release the headers of the last request, which may be large: an idle connection keeps its cycle."""
        cycle = self.cycle
        if type(cycle) is DirectCycle:
            cycle.headers, cycle.head = [], {}
            return
        cycle.scope = self.scope = _EMPTY_SCOPE
        if not self._reading_head:
            self.headers, self.head = [], {}

    def _new_keep_alive(self, pressed: bool) -> TimerQueue[GuardedProtocol]:
        usual_s = self.config.timeout_keep_alive
        delay_s = min(usual_s, PRESSURE_KEEP_ALIVE_S) if pressed else usual_s
        queue: TimerQueue[GuardedProtocol]
        queue = TimerQueue(self.loop, delay_s, HttpToolsProtocol.timeout_keep_alive_handler)
        return self.keep_alive.setdefault(pressed, queue)

    def _stop_keep_alive(self) -> None:
        if self._kept is not None:
            self._kept.discard(self)
            self._kept = None

    def _start_read_timer(self) -> None:
        if self._read_timer is None:
            unread = self.transport.get_write_buffer_size()
            self._goal = self.coalescing.written - unread + min(unread, READ_BYTES)
            self._read_timer = self.loop.call_later(self.read_s, self._check_reader)
            self.budget.behind(self)

    def _stop_read_timer(self) -> None:
        self.budget.caught_up(self)
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reader(self) -> None:
        self._read_timer = None
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self.budget.caught_up(self)
            return
        if self.coalescing.written - unread < self._goal:
            self.cut()
        else:
            self._start_read_timer()

    # Responses below ASGI

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its upgrade headers.

        Java's client offers HTTP/2 with its first request, and httptools treats the body as the new protocol's.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._answer_and_close(NOT_HTTP)
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _answer_and_close(self, error: HttpError) -> None:
        if self.transport.is_closing():
            return
        if self._reading_body and self.pipeline:
            self._drop_queued()
        cycle = self.cycle
        if self._reading_body and cycle is not None and cycle.response_complete:
            self.transport.close()  # the request was answered before its body came: it has its one answer
            return
        if cycle is not None and not cycle.response_complete:
            if not self._reading_body:
                # The last call is whole: answer it, then close. An error now would be read as its answer.
                cycle.keep_alive = False
                self._discards = True
                self._reading_head = False  # no head is awaited any more
                self.flow.pause_reading()
                return
            if cycle.response_started:
                self.transport.abort()
                return
        body = self.error_body[0](error)
        head = JSON_HEAD % (STATUS_LINE[error.status], len(body), b"connection: close\r\n")
        self.coalescing.write_response(head, body)
        self.transport.close()
        self._start_read_timer()

    def _drop_queued(self) -> None:
        """Drop the queued request whose body cannot be read: those before it are whole, and are answered."""
        self.pipeline.popleft()
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        self._reading_body = False
        self._stop_request_timer()

    async def _too_many_connections(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = overloaded(_TOO_MANY["share" if self._verdict == "share" else "full"])
        await respond(send, error.status, self.error_body[0](error), (*error.headers, (b"connection", b"close")))
