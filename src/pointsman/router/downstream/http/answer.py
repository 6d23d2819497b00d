"""Reads what a server answers over HTTP: JSON or an event stream, bounded, large bodies parsed off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR
from pointsman.core.wire import InvalidJsonError
from pointsman.router.downstream.connection import BudgetExceededError, ConnectionLostError
from pointsman.router.downstream.http.client import HttpResponse
from pointsman.router.downstream.http.event_stream import EventStreamParser
from pointsman.router.downstream.http.failures import FAILURES, failure_reason, status_reason
from pointsman.router.downstream.stderr_log import harmless
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES, decode, decode_off_loop
from pointsman.router.serving.in_flight import LARGE_BYTES, AnswerMemory, Lease

JSON, EVENT_STREAM = "application/json", "text/event-stream"
_LINGER_S = 1.0  # how long a stream may stay open behind its answer before its connection is given up
_NO_ENDPOINT = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_ERROR_BYTES = 64 * 1024  # of an error page that is looked at

TakeMessage = Callable[[Json], None]
"""Called with each notification and question; raises BudgetBroken when there are too many."""


class StreamCutError(ConnectionLostError):
    """A stream ended before its answer, but the server numbered its events: it can be taken up again."""

    def __init__(self, last_event_id: str, retry_ms: int | None) -> None:
        super().__init__("it ended its answer before the result")
        self.last_event_id = last_event_id
        self.retry_ms = retry_ms


class Arriving:
    """One answer on its way in. Once it is large it has a lease, and reading waits until there is room for it."""

    __slots__ = ("_lease", "_memory", "limit_bytes")

    def __init__(self, limit_bytes: int, memory: AnswerMemory | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._memory = memory
        self._lease: Lease | None = None

    async def settle(self, held: int, expected: int | None = None) -> None:
        """`held` bytes wait to be decoded, and `expected` may come, or all that is allowed."""
        if held <= LARGE_BYTES:
            self.release()  # a large notification has been passed on
        elif self._lease is None and self._memory is not None:
            most = self.limit_bytes if expected is None else min(expected, self.limit_bytes)
            self._lease = await self._memory.take(most)

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None


async def read_result(
    response: HttpResponse, number: int, limit_bytes: int, take: TakeMessage, memory: AnswerMemory | None = None
) -> Json:
    """The result of request `number`. Where it fails or is cancelled, the response is closed at once.

    Raises:
        DownstreamError, ConnectionLostError, BudgetExceededError. StreamCutError where the stream can be resumed.
    """
    arriving = Arriving(limit_bytes, memory)
    try:
        message = await _find_answer(response, number, arriving, take)
    except FAILURES as error:
        response.close()
        raise ConnectionLostError(failure_reason(error)) from None
    except BaseException:
        response.close()
        raise
    finally:
        arriving.release()
    _let_go(response)
    result = message.get("result")
    if isinstance(result, dict):
        return result
    raise error_in(message) or ConnectionLostError("it answered with neither a result nor an error")


async def read_body(response: HttpResponse, arriving: Arriving) -> bytes | bytearray:
    """The whole body, unpacked. Raises BudgetBroken; may raise what aiohttp raises."""
    content, limit_bytes = response.content, arriving.limit_bytes
    first = await content.readany()
    if content.at_eof() and len(first) <= limit_bytes:
        return first
    await arriving.settle(response.length or 0, response.length)
    body = bytearray(first)  # one growing block: many small ones would leave gaps that malloc cannot return
    while len(body) <= limit_bytes:
        part = await content.readany()
        if not part:
            return body
        body += part
        if len(body) > LARGE_BYTES:
            await arriving.settle(len(body))
    raise BudgetExceededError(f"it sent more than {limit_bytes} bytes for one call")


async def read_stream(
    response: HttpResponse, limit_bytes: int, take: TakeMessage, breather: Callable[[], float]
) -> None:
    """A standing stream, to its end: every message in it is taken, with a `breather` (in seconds) where it floods.

    Raises:
        ConnectionLostError, BudgetExceededError.
    """
    parser = EventStreamParser(limit_bytes)
    try:
        while chunk := await response.content.readany():
            for event in parser.feed(chunk):
                for message in await _messages(event.data) if event.data else ():
                    take(message)
            if pause_s := breather():
                await asyncio.sleep(pause_s)
    except FAILURES as error:
        raise ConnectionLostError(failure_reason(error)) from None
    finally:
        response.close()


async def _find_answer(response: HttpResponse, number: int, arriving: Arriving, take: TakeMessage) -> Json:
    if response.status != HTTPStatus.OK:
        return await _error_answer(response)
    if response.kind == JSON:
        return await _answer_in_json(response, number, arriving, take)
    if response.kind == EVENT_STREAM:
        return await _answer_in_stream(response, number, arriving, take)
    raise ConnectionLostError(f"it answered with `{harmless(response.kind, 60)}` where JSON or an event stream was due")


async def _answer_in_json(response: HttpResponse, number: int, arriving: Arriving, take: TakeMessage) -> Json:
    for message in await _messages(await read_body(response, arriving)):
        if "method" in message:
            take(message)
        elif message.get("id") == number:
            return message
    raise ConnectionLostError("it answered with JSON that is not the result of this call")


async def _answer_in_stream(response: HttpResponse, number: int, arriving: Arriving, take: TakeMessage) -> Json:
    limit_bytes = arriving.limit_bytes
    parser = EventStreamParser(limit_bytes)
    size = 0
    last_id: str | None = None
    retry_ms: int | None = None
    try:
        while chunk := await response.content.readany():
            size += len(chunk)
            if size > limit_bytes:
                raise BudgetExceededError(f"it sent more than {limit_bytes} bytes for one call")
            for event in parser.feed(chunk):
                last_id = event.id
                retry_ms = event.retry if event.retry is not None else retry_ms
                for message in await _messages(event.data) if event.data else ():
                    if "method" in message:
                        take(message)
                    elif message.get("id") == number:
                        return message
            await arriving.settle(parser.held)
    except FAILURES:
        if not last_id:
            raise
    if last_id:
        raise StreamCutError(last_id, retry_ms)
    raise ConnectionLostError("it ended its answer before the result")


async def _messages(data: bytes | bytearray) -> Iterable[Json]:
    """The JSON-RPC messages in one body or event; a batch (protocol 2025-03-26) holds several."""
    try:
        found = decode(data) if len(data) <= OFF_LOOP_BYTES else await decode_off_loop(data)
    except InvalidJsonError:
        raise ConnectionLostError("it answered with something that is not JSON") from None
    return (message for message in (found if isinstance(found, list) else (found,)) if isinstance(message, dict))


def error_in(message: Json) -> DownstreamError | None:
    error: Any = message.get("error")
    if not isinstance(error, dict):
        return None
    code = error.get("code")
    text = error.get("message")
    return DownstreamError(
        code if isinstance(code, int) else INTERNAL_ERROR, text if isinstance(text, str) else "", error.get("data")
    )


async def _error_answer(response: HttpResponse) -> Json:
    """A JSON-RPC error under an HTTP error status is an answer; anything else is a failure of the exchange."""
    status = response.status
    if 300 <= status < 400 or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ConnectionLostError(status_reason(status))
    for message in await read_error(response):
        if error_in(message) is not None:
            return message  # whatever its id: a server that refused to read the request may not know it
    old = " (an older server, for SSE? then say `transport: sse`)" if status in _NO_ENDPOINT else ""
    raise ConnectionLostError(status_reason(status) + old)


async def read_error(response: HttpResponse) -> Iterable[Json]:
    """The JSON-RPC messages in the body of a refused request; none where it holds something else."""
    if response.kind != JSON:
        return ()
    try:
        return await _messages(await read_body(response, Arriving(_ERROR_BYTES)))
    except (*FAILURES, BudgetExceededError, ConnectionLostError):
        return ()  # the status alone says enough


def _let_go(response: HttpResponse) -> None:
    """Keep the connection if the body has ended or is about to; the end of a stream follows its answer closely."""
    if not response.content.is_eof():
        timer = asyncio.get_running_loop().call_later(_LINGER_S, response.close)
        response.content.on_eof(timer.cancel)
