"""How answers are written: one JSON-RPC message as a JSON body, or as an event of a stream."""

from __future__ import annotations

from typing import Any

from starlette.types import Send

from pointsman.core.model import Json
from pointsman.core.wire import encode
from pointsman.router.front.http.refusal import Headers, HttpError

PING = b": ping\r\n\r\n"
_JSON_TYPE = (b"content-type", b"application/json")


async def respond(send: Send, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    """The whole answer. uvloop writes head and body in one system call."""
    length = (b"content-length", b"%d" % len(body))
    head = [_JSON_TYPE, length, *headers] if body else [length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def respond_refusal(send: Send, refusal: HttpError, request_id: Any) -> None:
    body = error_message(request_id, refusal.code, refusal.message, refusal.data)
    await respond(send, refusal.status, body, refusal.headers)


def result_message(request_id: Any, result: Json) -> bytes:
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
    """An id and nothing else."""
    return b"id: %b\r\ndata: \r\n\r\n" % event_id
