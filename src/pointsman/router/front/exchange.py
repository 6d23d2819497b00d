"""One request under way: its response is JSON, or a stream once there are other messages; and it can be cancelled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Raw, Struct
from starlette.types import Message

from pointsman.core.model import Caller, Json
from pointsman.core.rounds import long_turn
from pointsman.core.seams import INTERNAL_ERROR, REQUEST_CANCELLED, ClientGoneError, FrontRequest, ProtocolError, Span
from pointsman.core.wire import encode
from pointsman.router.front.http.body_parts import BodyParts, in_parts
from pointsman.router.front.http.http_request import HttpRequest
from pointsman.router.front.http.responses import INTERNAL, PING, error_message, event, respond, result_message
from pointsman.router.front.http.stream import EventStream, until_disconnected
from pointsman.router.front.http.unread import PendingResponse
from pointsman.router.front.legacy.replay import EventLog, SessionEvents
from pointsman.router.front.state import FrontState
from pointsman.router.serving.in_flight import LARGE_BYTES

_UNENCODABLE = (TypeError, ValueError, RecursionError)

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-")

_STOPPING = (
    "The gateway is stopping and could not wait for this request to end. It may have been carried out all the same: "
    "check before you repeat it."
)

_UNREADABLE = "The server's error cannot be shown, because its text is not valid. Try again later."

Outcome = Json | ProtocolError
"""The result of a request, or its error."""


@dataclass(frozen=True, slots=True)
class EraRules:
    """Where the two eras treat a request differently."""

    disconnect_cancels: bool
    error_status: Mapping[int, int]  # JSON-RPC code to HTTP status, where it is not 200


class Asker(Protocol):
    """Sends questions to a client during its request."""

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Raises CannotAskError, ClientGoneError, ProtocolError."""
        ...


class Successor(Protocol):
    """Receives the messages and the outcome of an exchange whose client was already answered."""

    def send_message(self, message: Json) -> bool: ...

    def finish(self, outcome: Outcome) -> None: ...


class Exchange(Struct, eq=False):  # a struct, because each call makes one
    """Fits `BackChannel`. The work runs in the HTTP request's own task, so cancelling it means cancelling that task."""

    _state: FrontState
    _id: str | int  # the client's
    _http: HttpRequest
    _rules: EraRules
    _asker: Asker
    _events: SessionEvents | None = None  # records a stream, so that a client that loses it can resume it
    # What follows is set while it runs.
    _log: EventLog | None = None  # of the stream, if it is recorded
    request: FrontRequest | None = None  # set once its parameters are checked
    span: Span | None = None  # set if requests are traced
    disconnected: bool = False
    _successor: Successor | None = None
    _working: bool = False
    _cancelled: bool = False
    _answers: list[asyncio.Future[Json]] | None = None
    _stream: EventStream | None = None
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.TimerHandle | None = None
    _disconnect_watcher: asyncio.Task[None] | None = None
    _writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Exchange({self._id!r})"  # without the request's content

    # For the gateway

    def notify(self, method: str, params: Json) -> None:
        self.send_message({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Json) -> Json:
        return await self._asker.ask(self, method, params)

    def reachable(self) -> bool:
        if self._successor is not None:
            return True  # a modern client, which comes back with its answer
        if not self._working or self._cancelled or self.disconnected:
            return False
        if self._log is not None and self._log.reader is not self._stream:
            return self._log.reader is not None  # it has lost the stream, and may have resumed it elsewhere
        connection = self._http.connection
        return connection is None or not connection.transport.is_closing()

    # For the front

    @property
    def waiting(self) -> bool:
        """Whether the client still waits for the response to this very request."""
        return self._working and not self._cancelled and not self.disconnected and self._successor is None

    def runs_in(self, task: asyncio.Task[Any] | None) -> bool:
        return self._task is task

    def log_ids(self) -> dict[str, str]:
        """Return the ids for lines of the log; without a tracer, the trace is that which the client names."""
        ids = {} if self.request is None else {"request_id": self.request.id}
        if self.span is not None:
            _, ids["trace_id"], ids["span_id"], _ = self.span.context["traceparent"].split("-")
        elif (trace_id := _trace_id(self._http)) is not None:
            ids["trace_id"] = trace_id
        return ids

    async def run(self, method: str, caller: Caller, work: Coroutine[Any, Any, Json]) -> None:
        """Await `work` and write its outcome as the response. `method` is for the log."""
        state = self._state
        if state.tracer is not None:
            self.span = state.tracer.begin(self._http.message or {}, self._http.head, caller)
        task = self._task = asyncio.current_task(state.loop)
        assert task is not None
        state.unwatched.add(self)
        state.running.add(self)
        outcome: Outcome | None = None  # stays so if the task itself is cancelled
        try:
            self._working = True
            try:
                outcome = await work
            except BaseException as error:
                outcome = self._failure(method, error)
            finally:
                self._working = False
                if self._cancelled:
                    task.uncancel()
            if self._successor is not None:
                self._successor.finish(outcome)
                return
            status, response = self._encode(method, outcome)
            await self._write(status, response)
        finally:
            state.running.discard(self)
            if state.idle is not None and not state.running and not state.idle.done():
                state.idle.set_result(None)
            state.unwatched.discard(self)
            if self.span is not None:
                self.span.end(asyncio.CancelledError() if outcome is None else outcome, self.request)
            if self._disconnect_watcher is not None:
                self._stop_watching()
            if self._writing is not None:
                self._writing.cancel()

    def send_message(self, message: Json) -> bool:
        """Put a message on the stream. Return False if it was dropped, because no client would read it."""
        if self._successor is not None:
            return self._successor.send_message(message)
        if not self._working or self.disconnected:
            return False
        try:
            data = encode(message)
        except _UNENCODABLE as error:
            self._state.failures.report("notification", error)
            return False
        return self._put(data)

    def cancel(self) -> None:
        """Cancel the work; a client that is still connected receives an error."""
        if self._working and not self._cancelled:
            assert self._task is not None
            self._cancelled = True
            self._task.cancel()

    def answer_early(self, result: Json, successor: Successor) -> None:
        """Respond now while the work goes on; `successor` receives its outcome."""
        self._successor = successor
        if self.span is not None:
            self.span.end(result, self.request)
        self._stop_watching()
        stream, writing, self._writing = self._stream, self._writing, None
        response = result_message(self._id, result)
        self._state.spawn("answer", _finish(self._http, response, stream, writing))

    def expect_answer(self) -> asyncio.Future[Json]:
        """Return a future for the client's answer to a question; fails with ClientGoneError on a disconnect."""
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        if self._answers is None:
            self._answers = []
        self._answers.append(answer)
        return answer

    def _failure(self, method: str, error: BaseException) -> ProtocolError:
        """Return the answer for work that raised. Raises `error` if the task itself is to end."""
        if isinstance(error, ProtocolError):
            # A copy: the traceback of this one refers to the frames that hold the outcome, and that cycle would keep
            # the arguments of the request until the garbage collector runs.
            return ProtocolError(error.code, error.message, error.data)
        if isinstance(error, asyncio.CancelledError):
            if not self._cancelled or (self._task is not None and self._task.cancelling() > 1):
                raise error  # the server cancelled the task, too: it is shutting down
            if self._state.stopping:  # clients cannot cancel any more, so this was `cancel_all`
                return ProtocolError(INTERNAL_ERROR, _STOPPING)
            return ProtocolError(
                REQUEST_CANCELLED, "Request cancelled by the client. Send it again if you still need it."
            )
        if not isinstance(error, Exception):
            raise error
        self._state.failures.report(method, error)
        return ProtocolError(INTERNAL_ERROR, INTERNAL)

    def _encode(self, method: str, outcome: Outcome) -> tuple[int, bytes | BodyParts]:
        if not isinstance(outcome, ProtocolError):
            try:
                undecoded = type(outcome.get("content")) is Raw and self._stream is None
                parts = in_parts(self._id, outcome) if undecoded else None
                return 200, parts or encode({"jsonrpc": "2.0", "id": self._id, "result": outcome})
            except _UNENCODABLE as error:
                self._state.failures.report(method, error)
                outcome = ProtocolError(INTERNAL_ERROR, INTERNAL)
        status = self._rules.error_status.get(outcome.code, 200)
        try:
            return status, error_message(self._id, outcome.code, outcome.message, outcome.data)
        except _UNENCODABLE:
            return status, error_message(self._id, outcome.code, _UNREADABLE)

    def _put(self, message: bytes) -> bool:
        stream = self._stream or self._open_stream()
        return stream.put(event(message)) if self._log is None else self._log.add(message)

    async def _write(self, status: int, response: bytes | BodyParts) -> None:
        if isinstance(response, BodyParts) or (len(response) > LARGE_BYTES and self._stream is None):
            await self._respond_large(status, response)
        elif self._log is not None:
            assert self._writing is not None
            self._log.finish(response)  # for the stream's present reader, or for one that resumes it
            await self._writing
        elif self.disconnected:
            return
        elif self._stream is not None:
            await _finish(self._http, response, self._stream, self._writing)
        else:
            await self._http.respond(status, response)

    async def _respond_large(self, status: int, response: bytes | BodyParts) -> None:
        """Count the response as unread while it waits for the client to read the one before (pipelining)."""
        if self.disconnected:
            return
        pending = PendingResponse(len(response))
        self._state.unread.hold(pending)
        await long_turn()  # encoding took long enough: others take their turn before it is written

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                pending.pending_bytes = 0  # from here on it is in the transport's buffer
            await self._http.send(message)

        await respond(send, status, response)

    def _open_stream(self) -> EventStream:
        stream = self._stream = EventStream(self._http.send, self._state.ping_s, self._state.unread)
        self._writing = asyncio.ensure_future(stream.run())
        if self._events is not None:
            self._log = self._events.open(self._abandon_answers)
            self._log.attach(stream)
        return stream

    def watch(self) -> None:
        """Watch for a disconnect and keep the connection alive, because the call takes long."""
        loop = self._state.loop
        self._disconnect_watcher = loop.create_task(self._watch_disconnect())
        self._timer = loop.call_later(self._state.ping_s, self._keep_alive)

    async def _watch_disconnect(self) -> None:
        await until_disconnected(self._http.receive)
        if self._log is not None and self._stream is not None:
            self._log.detach(self._stream, self._state.resume_s)
            return
        self.disconnected = True
        self._abandon_answers()
        if self._rules.disconnect_cancels:
            self.cancel()

    def _abandon_answers(self) -> None:
        for answer in self._answers or ():
            if not answer.done():
                answer.set_exception(ClientGoneError())

    def _keep_alive(self) -> None:
        """Open the stream, which then pings by itself: proxies close idle connections."""
        if not self._working or self.disconnected or self._stream is not None:
            return
        self._open_stream().put(PING)
        if self._log is not None:
            self._log.prime()

    def _stop_watching(self) -> None:
        self._state.unwatched.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._disconnect_watcher is not None:
            self._disconnect_watcher.cancel()
            # Its traceback refers to this exchange: a reference cycle would keep the request, with all its arguments,
            # until the garbage collector runs.
            self._disconnect_watcher = None


def _trace_id(http: HttpRequest) -> str | None:
    """The trace that the request belongs to by `_meta`, or by its headers."""
    params = (http.message or {}).get("params") or {}
    in_meta = (params.get("_meta") or {}).get("traceparent")
    for given in (in_meta, http.head.get(b"traceparent", b"").decode("latin-1")):
        if isinstance(given, str) and (found := _TRACEPARENT.match(given)):
            return found[1]
    return None


async def _finish(
    http: HttpRequest, response: bytes, stream: EventStream | None, writing: asyncio.Task[None] | None
) -> None:
    """Write the response as the last event of the stream, or as JSON if there is no stream."""
    if stream is None:
        await http.respond(200, response)
        return
    assert writing is not None
    stream.close(event(response))
    await writing
