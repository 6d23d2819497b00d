"""One HTTP/1.1 connection to a server: a request out, its response in.

httptools (llhttp) parses a response, unless it repeats the head of the one before (`response_head.py`).

No maintained client comes near this one: measured with the same request and server, aiohttp's session needs 5 times its
CPU, the compiled ones (pyreqwest, rnet, primp) 3 to 7 times, httpx2 40 times. It does only what this gateway needs:
HTTP/1.1, one exchange at a time, gzip and deflate, bounded heads, and flow control for large bodies.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools
from msgspec import Struct

from pointsman.core.rounds import own_round
from pointsman.router.downstream.http.failures import ExchangeError, UnsentError
from pointsman.router.downstream.http.response_head import ResponseHead
from pointsman.router.serving.write_queue import WriteQueue

HEAD_BYTES: Final = 64 << 10  # of a response's head, and of what frames its body (chunk sizes, trailers)
FRAMING_FACTOR: Final = 8  # framing may be this many times the body: servers may send chunks of one byte
CHALLENGE_BYTES: Final = 8192  # of all `WWW-Authenticate` of a response together
HIGH_WATER: Final = 128 << 10  # bytes of a body that wait to be read; above that the socket is not read
UNPACKED_BYTES: Final = 256 << 10  # a part of a compressed body, so that a small one cannot fill the memory
_USUAL_KINDS: Final = {b"application/json": "application/json", b"text/event-stream": "text/event-stream"}
_ZIPPED: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
_RAW_DEFLATE: Final = -15
_CHALLENGE: Final = b"www-authenticate"
_OK: Final = 200
_DEFLATE_METHOD: Final = 8  # in the first byte of a zlib stream

CUT_OFF = "its answer was cut off or could not be unpacked"
CLOSED = "it closed the connection before it answered"
NOT_HTTP = "its answer is not HTTP"
UNASKED = "it sent something before it was asked"


class Owner(Protocol):
    """The pool of a connection."""

    def released(self, connection: HttpConnection) -> None:
        """The exchange is over, and the connection can be used again."""
        ...

    def lost(self, connection: HttpConnection) -> None:
        """The connection is closed."""
        ...


class HttpResponse(Struct, eq=False):  # a struct, because each call makes one
    """A response. Its connection returns to the pool when the body has ended."""

    _connection: HttpConnection
    status: int
    head: dict[bytes, bytes]  # by name, in lower case; of several of one name the last, of challenges all
    kind: str  # the media type without parameters
    _inflater: _Inflater | None = None
    ended: bool = False  # the whole body has arrived
    _parts: list[bytes] = []  # that wait to be read
    _size: int = 0
    _error: Exception | None = None
    _waiter: asyncio.Future[None] | None = None
    _at_end: Callable[[], object] | None = None

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {self.kind!r})"  # without its content

    @property
    def length(self) -> int | None:
        """The announced length of the body, if there is one."""
        length = self.head.get(b"content-length", b"")
        return int(length) if length.isdigit() and self._inflater is None else None

    @property
    def read_all(self) -> bool:
        """Whether nothing is left to read."""
        return self.ended and not self._parts and self._inflater is None and self._error is None

    def text(self, name: bytes) -> str | None:
        """The value of a header, with other bytes than UTF-8 escaped as surrogates."""
        value = self.head.get(name)
        return None if value is None else value.decode(errors="surrogateescape")

    def whole_body(self, limit: int) -> bytes | None:
        """The body, if it has arrived in one part, not compressed, and within `limit`; None: `read` it."""
        if not self.ended or len(self._parts) != 1 or self._size > limit or self._inflater is not None:
            return None
        return self._parts.pop()

    async def read(self) -> bytes:
        """The next part of the body; empty at its end. Raises ExchangeError, OSError."""
        if self._inflater is not None and self._inflater.has_more:
            await own_round()  # many such bodies at a time would otherwise hold the event loop for seconds
        while True:
            if self._inflater is not None and (unpacked := self._inflater.read()):
                return unpacked
            if self._parts:
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                if self._size > HIGH_WATER and not self.ended:
                    self._connection.resume_reading()
                self._size = 0
                if self._inflater is None:
                    return data
                self._inflater.add(data)
                continue
            if self._error is not None:
                raise self._error
            if self.ended:
                if self._inflater is not None:
                    self._inflater.finish()
                return b""
            await self._more()

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the body has ended. One at most."""
        self._at_end = callback

    def close(self) -> None:
        """Discard the rest: unless the body has ended, the connection is closed."""
        if not self.ended:
            self._connection.close()

    def close_connection(self) -> None:
        """Close the connection, also if another call has taken it: its answers are out of step."""
        self._connection.close()

    async def _more(self) -> None:
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # For the connection

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER:
            self._connection.pause_reading()
        if self._waiter is not None:
            self._wake(self._waiter)

    def end(self, error: Exception | None = None) -> None:
        if self.ended or self._error is not None:
            return
        if error is None:
            self.ended = True
        else:
            self._error = error
        if self._at_end is not None:
            self._at_end()
        if self._waiter is not None:
            self._wake(self._waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)


class HttpConnection(asyncio.Protocol):
    """A connection, kept alive between exchanges."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner, writes: WriteQueue) -> None:
        self.loop = loop
        self.idle_since = 0.0  # 0: it has not been idle
        self._owner = owner
        self._writes = writes
        self._transport: asyncio.Transport
        self._poll: select.poll | None = None  # None: TLS, or no socket
        self._parser = httptools.HttpResponseParser(self)
        self._head: dict[bytes, bytes] = {}
        self._framing = 0  # bytes of head and framing so far
        self._delivered = 0  # bytes of the body so far
        self._since_body = 0  # bytes of head or framing since the last ones of the body
        self._answer: asyncio.Future[HttpResponse] | None = None  # None: no request is under way
        self._unsent = False  # the request waits in the queue
        self._response: HttpResponse | None = None  # None: its head has not arrived
        self._in_message = False  # the parser has seen its beginning, and not its end
        self._completed: HttpResponse | None = None  # that has ended in the piece that is read now
        self._last_head: ResponseHead | None = None  # None: parse the next response
        self._paused = False
        self._lost = False

    # For the client

    def send(self, data: bytes) -> asyncio.Future[HttpResponse]:
        """Send a request. The future has its response, or ExchangeError or OSError; UnsentError: nothing was sent."""
        answer = self._answer = self.loop.create_future()
        self._response, self._framing, self._delivered, self._since_body = None, 0, 0, 0
        self._unsent = True
        if self._lost:
            self._fail(UnsentError(CLOSED))
        else:
            self._writes.add(self, data, self.loop)
        return answer

    def write_now(self, data: bytes) -> None:
        """Fits `write_queue.Writer`.

        A connection that was idle and is readable before anything is sent was closed by the server, and the event
        loop has not processed that yet. A request sent into it would be lost, and could not be retried safely.
        """
        if not self.is_open() or (self.idle_since and self._poll is not None and self._poll.poll(0)):
            self._fail(UnsentError(CLOSED))
            return
        self._unsent = False
        self._transport.write(data)

    def is_open(self) -> bool:
        """Whether the server has not closed it, as far as the event loop knows; `write_now` looks again."""
        return not self._lost and not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    def abandon(self, answer: asyncio.Future[HttpResponse]) -> None:
        """Close the connection, unless the exchange with this answer is over: another one may have begun on it."""
        if self._answer is answer:
            self._transport.abort()

    def pause_reading(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from it
        handle = transport.get_extra_info("socket")
        if handle is not None and transport.get_extra_info("ssl_object") is None:  # TLS may have tickets to read
            self._poll = select.poll()
            self._poll.register(handle.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._unsent:  # the request is still in the write queue, so this cannot be its answer
            self._fail(UnsentError(UNASKED))
            return
        begins = not self._in_message
        if begins and self._answer_without_parser(data):
            return
        self._parse(data)
        response, self._completed = self._completed, None
        if begins:
            self._last_head = (
                None if response is None else ResponseHead.of(data, response.status, response.head, response.kind)
            )

    def _answer_without_parser(self, data: bytes) -> bool:
        """Return False if `data` is anything else than one whole response with the head of the last one."""
        last, answer = self._last_head, self._answer
        if last is None or answer is None or (body := last.repeated.body_in(data)) is None:
            return False
        self._answer = None
        self._end_exchange(keep_alive=True)
        if not answer.done():
            parts = [body] if body else []
            answer.set_result(HttpResponse(self, _OK, last.head, last.kind, None, True, parts, len(body)))
        return True

    def _parse(self, data: bytes) -> None:
        before = self._delivered
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raised = error.__context__  # in one of the parser's callbacks
            broken = ExchangeError(NOT_HTTP if self._response is None else CUT_OFF)
            self._fail(raised if isinstance(raised, ExchangeError) else broken)
            return
        self._framing += len(data) - (self._delivered - before)
        self._since_body = self._since_body + len(data) if self._delivered == before else 0
        if self._since_body > HEAD_BYTES or self._framing > HEAD_BYTES + FRAMING_FACTOR * self._delivered:
            self._fail(ExchangeError(NOT_HTTP))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        response = self._response
        if response is not None and exc is None and _ends_with_connection(response):
            self._answer = self._response = None
            response.end()
        elif self._unsent:
            self._fail(UnsentError(CLOSED))
        elif self._answer is not None:
            self._fail(exc or ExchangeError(CLOSED if response is None else CUT_OFF))
        self._owner.lost(self)

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise ExchangeError(UNASKED)  # the parser stops, and the connection is closed
        self._head = {}
        self._in_message = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response is not None:
            return  # a trailer
        name, value = name.lower(), value.strip(b" \t")
        if name == _CHALLENGE and name in self._head:
            value = _joined(self._head[name], value)
        self._head[name] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._answer is None:
            return  # an interim response
        response = self._response = response_of(self, status, self._head)
        if not self._answer.done():
            self._answer.set_result(response)

    def on_body(self, data: bytes) -> None:
        self._delivered += len(data)
        if self._response is not None:
            self._response.add(data)

    def on_message_complete(self) -> None:
        self._in_message = False
        response = self._response
        if response is None:
            return  # an interim response
        self._answer = self._response = None
        if self._paused:
            self.resume_reading()
        keep_alive = self._parser.should_keep_alive()
        if keep_alive:
            self._completed = response
        self._end_exchange(keep_alive=keep_alive)
        response.end()

    def _end_exchange(self, *, keep_alive: bool) -> None:
        """Return the connection to the pool; not if the server answered before all of the request was written.

        Over TLS the transport does not say whether it was.
        """
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        elif keep_alive:
            self._owner.released(self)
        else:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        """End the exchange and the connection."""
        answer, response, self._answer, self._response = self._answer, self._response, None, None
        self._unsent = False
        if response is not None:
            response.end(error)
        elif answer is not None and not answer.done():
            answer.set_exception(error)
        self._transport.abort()


def _joined(before: bytes, value: bytes) -> bytes:
    """Several challenges as one header; without this one if they get too long."""
    return before + b", " + value if len(before) + len(value) + 2 <= CHALLENGE_BYTES else before


def response_of(connection: HttpConnection, status: int, head: dict[bytes, bytes]) -> HttpResponse:
    """Raises ExchangeError: the body is compressed in an unknown way."""
    given = head.get(b"content-type", b"")
    kind = _USUAL_KINDS.get(given) or given.partition(b";")[0].strip().lower().decode("latin-1")
    inflater = _Inflater.of(head[b"content-encoding"]) if b"content-encoding" in head else None
    return HttpResponse(connection, status, head, kind, inflater)


def _ends_with_connection(response: HttpResponse) -> bool:
    """Whether the body has no length, so that the end of the connection is its end."""
    return b"content-length" not in response.head and b"transfer-encoding" not in response.head


class _Inflater:
    """Unpacks a compressed body in bounded parts."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._zlib: zlib._Decompress | None = None  # made with the first bytes, which tell raw deflate from zlib's
        self._packed = b""
        self._surplus = 0  # bytes behind the end of what is compressed
        self._holds_more = False  # zlib may hold output of what it has taken

    @classmethod
    def of(cls, encoding: bytes) -> _Inflater | None:
        """None if the body is not compressed. Raises ExchangeError."""
        name = encoding.strip().lower()
        if name in (b"", b"identity"):
            return None
        if name not in _ZIPPED:
            raise ExchangeError(CUT_OFF)
        return cls(_ZIPPED[name])

    @property
    def has_more(self) -> bool:
        """Whether there is a further part in what was added."""
        return bool(self._packed) or self._holds_more

    def add(self, data: bytes) -> None:
        """Add what was received. Raises ExchangeError: there is too much behind the end."""
        if self._zlib is None or not self._zlib.eof:
            self._packed += data
        else:
            self._ignore(data)

    def _ignore(self, data: bytes) -> None:
        self._surplus += len(data)
        if self._surplus > UNPACKED_BYTES:
            raise ExchangeError(CUT_OFF)

    def read(self) -> bytes:
        """The next part, or nothing without more data. Raises ExchangeError."""
        try:
            while self.has_more:
                if self._zlib is None:
                    raw = self._wbits == _ZIPPED[b"deflate"] and self._packed[0] & 0xF != _DEFLATE_METHOD
                    self._zlib = zlib.decompressobj(_RAW_DEFLATE if raw else self._wbits)
                unpacked = self._zlib.decompress(self._packed, UNPACKED_BYTES)
                self._packed = self._zlib.unconsumed_tail
                self._holds_more = len(unpacked) == UNPACKED_BYTES and not self._zlib.eof
                if self._zlib.eof:
                    self._packed = b""  # what follows the end is not part of the body
                    self._ignore(self._zlib.unused_data)
                if unpacked:
                    return unpacked
        except zlib.error:
            raise ExchangeError(CUT_OFF) from None
        return b""

    def finish(self) -> None:
        """Raises ExchangeError: the body ended before its compressed content did."""
        if self._zlib is not None and not self._zlib.eof:
            raise ExchangeError(CUT_OFF)
