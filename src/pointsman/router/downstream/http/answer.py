"""Reads a server's answer over HTTP: JSON or an event stream, bounded, large bodies decoded off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NoReturn

from pointsman.core.large_block import LargeBlock
from pointsman.core.model import Json
from pointsman.core.rounds import own_round
from pointsman.core.wire import InvalidJsonError
from pointsman.router.downstream.connection import BudgetExceededError, ConnectionLostError
from pointsman.router.downstream.http.client import HANDSHAKE_NUMBER
from pointsman.router.downstream.http.event_stream import EventStreamParser
from pointsman.router.downstream.http.exchange import HttpResponse
from pointsman.router.downstream.http.failures import FAILURES, failure_reason, status_reason
from pointsman.router.downstream.stderr_log import sanitize
from pointsman.router.downstream.talk.decoding import NO_RESULT, OFF_LOOP_BYTES, decode, decode_off_loop, error_in
from pointsman.router.serving.in_flight import LARGE_BYTES, AnswerMemory, Lease

JSON, EVENT_STREAM = "application/json", "text/event-stream"
_KINDS = (JSON, EVENT_STREAM)
_OK = int(HTTPStatus.OK)
_LINGER_S = 1.0  # how long a stream may stay open after its answer before its connection is closed
_NO_ENDPOINT = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_ERROR_BYTES = 64 * 1024  # read of an error page
_OWN_ROUND_BYTES = 128 * 1024  # more take a millisecond to decode
_NOT_JSON = "it answered with something that is not JSON"
_NOT_THE_RESULT = "it answered with JSON that is not the result of this call"
_CUT = "it ended its answer before the result"
_PLACEHOLDER_IDS = (-1, 0, HANDSHAKE_NUMBER)

OnMessage = Callable[[Json], None]
"""Called with each notification and question. Raises BudgetExceededError when there are too many."""


class StreamCutError(ConnectionLostError):
    """A stream ended before its answer, but its events have ids: it can be resumed."""

    def __init__(self, last_event_id: str, retry_ms: int | None) -> None:
        super().__init__(_CUT)
        self.last_event_id = last_event_id
        self.retry_ms = retry_ms


@dataclass(slots=True)
class IncomingAnswer:
    """The memory of one answer. A large one needs a lease, and reading waits until it is granted."""

    limit_bytes: int
    memory: AnswerMemory | None = None
    lease: Lease | None = None

    async def adjust_lease(self, held: int, expected: int | None = None) -> None:
        """Take or release the lease: `held` bytes wait to be decoded, and `expected` are announced, if known."""
        if held <= LARGE_BYTES:
            self.release()  # a large notification has been handled
        elif self.lease is None and self.memory is not None:
            most = self.limit_bytes if expected is None else min(expected, self.limit_bytes)
            self.lease = await self.memory.take(most)

    def release(self) -> None:
        if self.lease is not None:
            self.lease.release()
            self.lease = None


class ForeignAnswerError(ConnectionLostError):
    """The answer is that of another call, perhaps another caller's: those that follow may be as well."""


async def read_result(
    response: HttpResponse, number: int, limit_bytes: int, on_message: OnMessage, memory: AnswerMemory | None = None
) -> Json:
    """Return the result of request `number`. On failure or cancellation the response is closed at once.

    Raises:
        DownstreamError, ConnectionLostError, BudgetExceededError. StreamCutError where the stream can be resumed.
    """
    try:
        kind = response.kind
        if response.status != _OK:
            message = await _error_answer(response, number)
        elif kind not in _KINDS:
            _refuse_kind(kind)
        elif kind == JSON and (body := response.whole_body(min(limit_bytes, OFF_LOOP_BYTES))) is not None:
            message = _decoded(body)
            if type(message) is not dict or message.get("id") != number or "method" in message:
                message = _answer_among(_objects(message), number, on_message)
        else:
            message = await _read_answer(response, kind, number, IncomingAnswer(limit_bytes, memory), on_message)
    except FAILURES as error:
        response.close()
        raise ConnectionLostError(failure_reason(error)) from None
    except ForeignAnswerError:
        response.close_connection()
        raise
    except BaseException:
        response.close()
        raise
    if not response.ended:
        _close_late(response)
    result = message.get("result")
    if isinstance(result, dict):
        return result
    raise error_in(message) or ConnectionLostError(NO_RESULT)


async def read_body(response: HttpResponse, answer: IncomingAnswer) -> bytes | memoryview:
    """Return the whole body, decompressed. Raises BudgetExceededError, ExchangeError, OSError."""
    limit_bytes = answer.limit_bytes
    first = await response.read()
    if response.read_all and len(first) <= limit_bytes:
        return first
    await answer.adjust_lease(response.length or 0, response.length)
    body = LargeBlock(min(response.length or 0, limit_bytes))  # many small blocks would fragment the heap
    body.add(first)
    while len(body) <= limit_bytes:
        part = await response.read()
        if not part:
            return body.view()
        body.add(part)
        if len(body) > LARGE_BYTES:
            await answer.adjust_lease(len(body))
    raise BudgetExceededError(f"it sent more than {limit_bytes} bytes for one call")


async def read_stream(
    response: HttpResponse, limit_bytes: int, on_message: OnMessage, pause_s: Callable[[], float]
) -> None:
    """Read a standalone stream to its end, and hand over every message. `pause_s` throttles a flood.

    Raises:
        ConnectionLostError, BudgetExceededError.
    """
    parser = EventStreamParser(limit_bytes)
    try:
        while chunk := await response.read():
            for event in parser.feed(chunk):
                for message in await _messages(event.data) if event.data else ():
                    on_message(message)
            if seconds := pause_s():
                await asyncio.sleep(seconds)
    except FAILURES as error:
        raise ConnectionLostError(failure_reason(error)) from None
    finally:
        response.close()


async def _read_answer(
    response: HttpResponse, kind: str, number: int, answer: IncomingAnswer, on_message: OnMessage
) -> Json:
    """Read the answer in a body that has not arrived whole."""
    try:
        if kind == EVENT_STREAM:
            return await _answer_in_stream(response, number, answer, on_message)
        return _answer_among(await _messages(await read_body(response, answer)), number, on_message)
    finally:
        answer.release()


class _OtherAnswers:
    """Responses beside that of call `number`, which are looked at only if it does not come.

    A server that could not read a request answers it under null, a word, or always the same number.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.foreign = False  # one names another call
        self.error: Json | None = None  # the first that names no call

    def note(self, message: Json) -> None:
        given, error = message.get("id"), error_in(message)
        if error is None and "result" not in message:
            return  # no response
        if type(given) is int and given not in (self._number, *_PLACEHOLDER_IDS):
            self.foreign = True
        elif error is not None and self.error is None:
            self.error = message

    def instead(self, reason: str) -> Json:
        """Return the error that names no call. Raises ConnectionLostError if there is none, or an answer is foreign."""
        if self.foreign:
            raise ForeignAnswerError(reason)
        if self.error is None:
            raise ConnectionLostError(reason)
        return self.error


def _answer_among(messages: Iterable[Json], number: int, on_message: OnMessage) -> Json:
    others = _OtherAnswers(number)
    for message in messages:
        if "method" in message:
            on_message(message)
        elif message.get("id") == number:
            return message
        else:
            others.note(message)
    return others.instead(_NOT_THE_RESULT)


async def _answer_in_stream(response: HttpResponse, number: int, answer: IncomingAnswer, on_message: OnMessage) -> Json:
    limit_bytes = answer.limit_bytes
    parser = EventStreamParser(limit_bytes)
    size = 0
    last_id: str | None = None
    retry_ms: int | None = None
    others = _OtherAnswers(number)
    try:
        while chunk := await response.read():
            size += len(chunk)
            if size > limit_bytes:
                raise BudgetExceededError(f"it sent more than {limit_bytes} bytes for one call")
            for event in parser.feed(chunk):
                last_id = event.id
                retry_ms = event.retry if event.retry is not None else retry_ms
                for message in await _messages(event.data) if event.data else ():
                    if "method" in message:
                        on_message(message)
                    elif message.get("id") == number:
                        return message
                    else:
                        others.note(message)
            await answer.adjust_lease(parser.held)
    except FAILURES:
        if not last_id:
            raise
    if last_id:
        raise StreamCutError(last_id, retry_ms)
    return others.instead(_CUT)


def _refuse_kind(kind: str) -> NoReturn:
    raise ConnectionLostError(f"it answered with `{sanitize(kind, 60)}` where JSON or an event stream was due")


async def _messages(data: bytes | memoryview) -> Iterable[Json]:
    """The JSON-RPC messages in one body or event."""
    if len(data) <= OFF_LOOP_BYTES:
        if len(data) > _OWN_ROUND_BYTES:
            await own_round()  # the lists of many servers come at the same time
        return _objects(_decoded(data))
    try:
        return _objects(await decode_off_loop(data))
    except InvalidJsonError:
        raise ConnectionLostError(_NOT_JSON) from None


def _decoded(data: bytes | memoryview) -> Any:
    try:
        return decode(data)
    except InvalidJsonError:
        raise ConnectionLostError(_NOT_JSON) from None


def _objects(value: object) -> Iterable[Json]:
    """The messages; a batch (protocol 2025-03-26) holds several."""
    if type(value) is dict:
        return (value,)
    return [message for message in value if type(message) is dict] if type(value) is list else ()


async def _error_answer(response: HttpResponse, number: int) -> Json:
    """A JSON-RPC error under an HTTP error status is an answer; anything else is a failure of the exchange."""
    status = response.status
    if 300 <= status < 400 or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ConnectionLostError(status_reason(status))
    others = _OtherAnswers(number)
    for message in await read_error(response):
        if message.get("id") == number and error_in(message) is not None:
            return message
        if "method" not in message:
            others.note(message)
    if others.foreign or others.error is not None:
        return others.instead(status_reason(status))
    old = " (for an older server with SSE, set `transport: sse`)" if status in _NO_ENDPOINT else ""
    raise ConnectionLostError(status_reason(status) + old)


async def read_error(response: HttpResponse) -> Iterable[Json]:
    """The JSON-RPC messages in the body of an HTTP error, if there are any."""
    if response.kind != JSON:
        return ()
    try:
        return await _messages(await read_body(response, IncomingAnswer(_ERROR_BYTES)))
    except (*FAILURES, BudgetExceededError, ConnectionLostError):
        return ()  # the status is reason enough


def _close_late(response: HttpResponse) -> None:
    """Close the connection unless the body ends soon: a stream usually ends right after its answer."""
    timer = asyncio.get_running_loop().call_later(_LINGER_S, response.close)
    response.on_end(timer.cancel)
