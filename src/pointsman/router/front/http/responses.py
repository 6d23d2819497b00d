"""Writes HTTP responses: a JSON-RPC message as a JSON body or as an event of a stream, and errors by HTTP status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.types import Send

from pointsman.core.errors import (
    BAD_REQUEST,
    OVERLOADED,
    TOO_LARGE,
    UNKNOWN_REPLICA,
    ForbiddenError,
    RateLimitedError,
    ScopeError,
    SignInUnavailableError,
    UnauthorizedError,
)
from pointsman.core.seams import INTERNAL_ERROR, INVALID_REQUEST
from pointsman.core.wire import encode
from pointsman.router.front.http.body_parts import BodyParts
from pointsman.router.peers.signing import HEADER, REFUSED
from pointsman.router.serving.write_queue import WriteQueue

Headers = tuple[tuple[bytes, bytes], ...]

PING = b": ping\r\n\r\n"
HEAD_BYTES = 64 << 10  # of a request
HEAD_LINES = 200  # each field costs memory beyond its bytes
AT_CAPACITY = {"code": OVERLOADED}
_LARGE_BYTES = 256 << 10
_JSON_TYPE = (b"content-type", b"application/json")
# `error.data.code`. The status alone identifies a lost session (404) and an overload (503).
REASONS = {
    400: BAD_REQUEST,
    401: UnauthorizedError.code,
    403: ForbiddenError.code,
    405: BAD_REQUEST,
    406: BAD_REQUEST,
    408: BAD_REQUEST,
    413: TOO_LARGE,
    415: BAD_REQUEST,
    421: BAD_REQUEST,
    429: RateLimitedError.code,
}

INTERNAL = "Internal error. Try again later; the operator finds the reason in the gateway's log."


def sorted_allow(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a 405, with the methods of `Allow` in one order: Starlette's changes with each start."""
    return {
        name: ", ".join(sorted(value.split(", "))) if name.lower() == "allow" else value
        for name, value in headers.items()
    }


class ClientDisconnectedError(Exception):
    """The client disconnected before its request was complete, so no response can be sent."""


class HttpError(Exception):
    """Ends a request with an HTTP status and a JSON-RPC error as the body. `str(error)` is shown to the user."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        data: Any = None,
        headers: Headers = (),
        audit_code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code  # of JSON-RPC
        self.headers = headers
        self._data = data
        self._audit_code = audit_code  # where the audit tells more than the status
        self.scopes: tuple[str, ...] = ()  # OAuth scopes that the request needs and its access token lacks
        self.person: str | None = None  # whom a verified access token stands for that was refused, for the audit

    @property
    def data(self) -> Any:
        reason = ScopeError.code if self.scopes else REASONS.get(self.status)
        if reason is None:
            return self._data
        return {**(self._data or {}), "code": reason}

    @property
    def audited(self) -> bool:
        """Whether it is recorded in the audit: host, origin or token was refused, or the gateway was at capacity."""
        return self._audit_code is not None or self.status in (401, 403) or self.data == AT_CAPACITY

    @property
    def audit_code(self) -> str:
        return self._audit_code or str(self.data["code"])

    def body(self, request_id: Any = None) -> bytes:
        return error_message(request_id, self.code, self.message, self.data)


# Errors that are answered below ASGI
SLOW_HEAD = HttpError(
    408, "The request header took longer than `limits.header_s`. Send the request again, without pauses."
)
SLOW_BODY = HttpError(408, "The request body took longer than `limits.body_s`. Send the request again, without pauses.")
LARGE_HEAD = HttpError(
    431,
    f"The request header is larger than {HEAD_BYTES} bytes or has more than {HEAD_LINES} fields. Send fewer or shorter "
    "header fields.",
)
NOT_HTTP = HttpError(400, "This is not HTTP. Send an HTTP/1.1 request.")


class Respond(Protocol):
    async def __call__(self, status: int, body: bytes = b"", headers: Headers = ()) -> None:
        """Write a whole response, once the client has read enough of those before."""
        ...


async def respond(send: Send, status: int, body: bytes | BodyParts = b"", headers: Headers = ()) -> None:
    """Write a whole response over ASGI."""
    length = (b"content-length", b"%d" % len(body))
    head = [_JSON_TYPE, length, *headers] if body else [length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def result_message(request_id: Any, result: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_message(request_id: Any, code: int, message: str, data: Any = None) -> bytes:
    error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def event(message: bytes) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % message


def numbered_event(event_id: bytes, message: bytes) -> bytes:
    return b"id: %b\r\nevent: message\r\ndata: %b\r\n\r\n" % (event_id, message)


def priming_event(event_id: bytes) -> bytes:
    """An event that has an id and no data, from which a client can resume."""
    return b"id: %b\r\ndata: \r\n\r\n" % event_id


def unauthorized(message: str, audit_code: str | None = None) -> HttpError:
    return HttpError(401, message, headers=((b"www-authenticate", b"Bearer"),), audit_code=audit_code)


def forbidden(message: str) -> HttpError:
    return HttpError(403, message)


def insufficient_scope(error: ScopeError) -> HttpError:
    """The front adds the challenge, which names the scopes."""
    refusal = HttpError(403, str(error), audit_code=error.code)
    refusal.scopes = error.scopes
    return refusal


def sign_in_unavailable(error: SignInUnavailableError) -> HttpError:
    """Not 401: a client would sign in again, to no avail."""
    data, headers = {"code": error.code}, ((b"retry-after", b"5"),)
    return HttpError(503, str(error), code=INTERNAL_ERROR, data=data, headers=headers, audit_code=error.code)


def not_from_a_replica() -> HttpError:
    """The header tells a replica that this is about its signature, and not about its client."""
    return HttpError(
        403,
        "The header X-Pointsman-Peer is not from a replica of this gateway. Leave it out; if this is one, compare the "
        "clocks and `state.request_keys` of the replicas.",
        headers=((HEADER, REFUSED),),
        audit_code=UNKNOWN_REPLICA,
    )


def replica_refused() -> HttpError:
    return HttpError(
        502,
        "The replica that this belongs to does not accept messages of this one, so nothing was carried out. Make the "
        "call again; the operator compares the clocks and `state.request_keys` of the replicas.",
        code=INTERNAL_ERROR,
    )


def replica_lost() -> HttpError:
    """Not 503: a proxy may repeat that, and what ran there may have had effects."""
    return HttpError(
        502,
        "The replica that this belongs to ended before it answered. It may have been carried out all the same: check "
        "before you repeat it.",
        code=INTERNAL_ERROR,
    )


def replica_unknown() -> HttpError:
    """Not 404, which would end the session. Nothing was delivered, so a repetition does no harm."""
    return overloaded(
        "The question that this answers is from a replica that cannot be reached now, so the answer was not delivered. "
        "Send it again in a few seconds; if that replica has ended, its call has, too: make the call again."
    )


def unknown_session() -> HttpError:
    """Also for another token's session, so that ids cannot be probed."""
    return HttpError(404, "Session not found. Open a new one with `initialize`.")


def method_not_allowed(allowed: bytes) -> HttpError:
    return HttpError(405, f"Method not allowed. Use {allowed.decode()}.", headers=((b"allow", allowed),))


def body_too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"The body is larger than {limit} bytes. Send less; the operator sets `limits.body_bytes`.",
    )


def too_many_streams(most: int) -> HttpError:
    return HttpError(
        429,
        f"This token has {most} streams open, which is its share: a quarter of `limits.connections`. "
        "Close some of them, then open this one again.",
        headers=((b"retry-after", b"5"),),
    )


def overloaded(message: str) -> HttpError:
    return HttpError(503, message, code=INTERNAL_ERROR, headers=((b"retry-after", b"5"),))


def internal_error() -> HttpError:
    return HttpError(500, INTERNAL, code=INTERNAL_ERROR)


def too_many_sessions() -> HttpError:
    return overloaded("Too many sessions are open. Try again later.")


def too_many_requests() -> HttpError:
    return _at_capacity(
        "The gateway has as many requests in progress as it accepts. Try again in a moment; "
        "the operator sets `limits.calls`."
    )


def too_many_large_bodies() -> HttpError:
    return _at_capacity(
        "The gateway holds as many large messages as it accepts. Try again in a moment, or send less at once; "
        "the operator sets `limits.in_flight_bytes`."
    )


def _at_capacity(message: str) -> HttpError:
    return HttpError(503, message, code=INTERNAL_ERROR, data=AT_CAPACITY, headers=((b"retry-after", b"1"),))


class CoalescingTransport:
    """Writes the head of a response together with its body. Fits `asyncio.Transport` by its shape.

    uvicorn writes head and body one after the other, and uvloop would send each with a system call of its own.
    """

    __slots__ = (
        *("_behind", "_loop", "_queue", "_queued", "_transport", "_write", "abort", "get_extra_info"),
        *("get_write_buffer_size", "head", "is_closing", "last", "set_protocol", "written"),
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        queue: WriteQueue,
        behind: Callable[[], None],
    ) -> None:
        """`behind` is called when the client has not taken all of a response that waited in the queue."""
        self._transport = transport
        self._loop = loop
        self._queue = queue
        self._queued = False  # a response waits in the queue
        self._behind = behind
        self._write = transport.write
        self.head = b""  # held back until the body follows
        self.written = 0  # bytes in all
        self.last = 0  # bytes of the latest write
        # All that uvicorn and the protocol use. Bound here: with a `__getattr__`, every attribute would be slow.
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.get_extra_info = transport.get_extra_info
        self.set_protocol = transport.set_protocol
        self.abort = transport.abort

    def write_response(self, head: bytes, body: bytes) -> None:
        """Write a whole response; a small one goes through the queue."""
        if len(body) > _LARGE_BYTES:
            self.head = head
            self.write(body)
            return
        data = head + body
        self.last = size = len(data)
        self.written += size
        self._queued = True
        self._queue.add(self, data, self._loop)

    def write_now(self, data: bytes) -> None:
        """Fits `write_queue.Writer`."""
        self._queued = False
        if self.is_closing():
            return
        self._write(data)
        if self.get_write_buffer_size():
            self._behind()

    def write(self, data: bytes | BodyParts) -> None:
        if self._queued:
            self._queue.flush()
        if self.head and len(data) > _LARGE_BYTES:
            head, self.head = self.head, b""
            self.written += len(head)
            self._write(head)  # a copy of the body would cost more than a system call
        if isinstance(data, BodyParts):
            self._write_parts(data)
            return
        if self.head:
            data, self.head = self.head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self.head = data
            return
        self.last = len(data)
        self.written += self.last
        self._write(data)

    def _write_parts(self, body: BodyParts) -> None:
        self.last = len(body)  # all of it is in memory until its last part is sent
        self.written += self.last
        for part in body.parts:
            self._write(part)

    def flush(self) -> None:
        """Write a head that has no body."""
        if self.head:
            self.write(b"")

    def close(self) -> None:
        if self._queued:
            self._queue.flush()
        self.flush()
        self._transport.close()
