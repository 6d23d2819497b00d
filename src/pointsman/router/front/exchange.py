"""One request under way: its answer is JSON until something is said, then a stream; and it can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Message, Receive, Send

from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, REQUEST_CANCELLED, ClientGoneError, FrontRequest, ProtocolError
from pointsman.core.wire import encode
from pointsman.router.front.http.answers import PING, error_message, event, respond, result_message
from pointsman.router.front.http.stream import EventStream, until_left
from pointsman.router.front.http.unread import PendingAnswer
from pointsman.router.front.legacy.replay import EventLog, SessionEvents
from pointsman.router.front.state import FrontState
from pointsman.router.serving.in_flight import LARGE_BYTES

WATCH_AFTER_S = 0.05  # most calls are over by then and never pay for somebody who watches the door
_UNENCODABLE = (TypeError, ValueError, RecursionError)

_STOPPING = (
    "The gateway is stopping and could not wait for this request to end. It may have been carried out all the same: "
    "check before you repeat it."
)

Outcome = Json | ProtocolError  # what the work of a request came to


@dataclass(frozen=True, slots=True)
class EraRules:
    """Where the two eras treat a request differently."""

    leaving_cancels: bool
    error_status: Mapping[int, int]  # JSON-RPC code to HTTP status, where it is not 200


class Asker(Protocol):
    """How a client is asked something in the middle of its request."""

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Raises CannotAskError, ClientGoneError, ProtocolError."""
        ...


class Successor(Protocol):
    """Whoever takes over what an exchange would have written, because its client was answered already."""

    def say(self, message: Json) -> bool: ...

    def finish(self, outcome: Outcome) -> None: ...


class Exchange:
    """Fits `BackChannel`. The work runs in the task of the HTTP request itself: cancelling it is cancelling that."""

    __slots__ = (
        "_asker",
        "_cancelled",
        "_desk",
        "_door",
        "_events",
        "_expected",
        "_id",
        "_log",
        "_receive",
        "_rules",
        "_send",
        "_stream",
        "_successor",
        "_task",
        "_timer",
        "_working",
        "_writing",
        "gone",
        "request",
    )

    def __init__(
        self,
        desk: FrontState,
        client_id: str | int,
        receive: Receive,
        send: Send,
        rules: EraRules,
        asker: Asker,
        events: SessionEvents | None = None,
    ) -> None:
        """`events`: where a stream is recorded, so that a client that loses it can come back for the rest."""
        self._desk = desk
        self._id = client_id
        self._receive = receive
        self._send = send
        self._rules = rules
        self._asker = asker
        self._events = events
        self._log: EventLog | None = None  # of the stream, once there is one
        self.request: FrontRequest | None = None  # as the gateway knows it, once it does
        self.gone = False  # the client closed its connection
        self._successor: Successor | None = None
        self._working = False
        self._cancelled = False
        self._expected: list[asyncio.Future[Json]] | None = None
        self._stream: EventStream | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._door: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None

    # For the gateway

    def tell(self, method: str, params: Json) -> None:
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Json) -> Json:
        return await self._asker.ask(self, method, params)

    # For the front

    @property
    def waiting(self) -> bool:
        """Whether its client still waits for the answer to this very request."""
        return self._working and not self._cancelled and not self.gone and self._successor is None

    async def run(self, method: str, work: Coroutine[Any, Any, Json]) -> None:
        """Do `work` and write its answer. `method` is for the log."""
        loop = self._desk.loop
        self._task = asyncio.current_task(loop)
        self._timer = loop.call_later(WATCH_AFTER_S, self._watch)
        self._desk.running.add(self)
        try:
            outcome = await self._outcome(method, work)
            if self._successor is None:
                await self._write(*self._encoded(method, outcome))
            else:
                self._successor.finish(outcome)
        finally:
            self._close()

    def say(self, message: Json) -> bool:
        """Put a message on the stream. False where nobody would read it: then it is dropped."""
        if self._successor is not None:
            return self._successor.say(message)
        if not self._working or self.gone:
            return False
        try:
            data = encode(message)
        except _UNENCODABLE as error:
            self._desk.failures.report("notification", error)
            return False
        return self._put(data)

    def cancel(self) -> None:
        """The work sees a cancellation, and the client, if it is still there, an error that says whose."""
        if self._working and not self._cancelled:
            assert self._task is not None
            self._cancelled = True
            self._task.cancel()

    def answer_early(self, result: Json, successor: Successor) -> None:
        """Answer the client now, while the work goes on; what it comes to is `successor`'s."""
        self._successor = successor
        self._stop_watching()
        stream, writing, self._writing = self._stream, self._writing, None
        answer = result_message(self._id, result)
        self._desk.beside("answer", _answer(self._send, answer, stream, writing))

    def expect_answer(self) -> asyncio.Future[Json]:
        """A place for the client's answer to a question; fails with ClientGone when the client leaves."""
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        if self._expected is None:
            self._expected = []
        self._expected.append(answer)
        return answer

    async def _outcome(self, method: str, work: Coroutine[Any, Any, Json]) -> Outcome:
        self._working = True
        try:
            return await work
        except ProtocolError as error:
            return error
        except asyncio.CancelledError:
            if not self._cancelled or (self._task is not None and self._task.cancelling() > 1):
                raise  # not ours, or not ours alone: the server is going down
            if self._desk.stopping:  # no client can cancel any more, so it was us
                return ProtocolError(INTERNAL_ERROR, _STOPPING)
            return ProtocolError(REQUEST_CANCELLED, "Request cancelled")
        except Exception as error:
            self._desk.failures.report(method, error)
            return ProtocolError(INTERNAL_ERROR, "Internal error")
        finally:
            self._working = False
            if self._cancelled:
                assert self._task is not None
                self._task.uncancel()

    def _encoded(self, method: str, outcome: Outcome) -> tuple[int, bytes]:
        if not isinstance(outcome, ProtocolError):
            try:
                return 200, result_message(self._id, outcome)
            except _UNENCODABLE as error:
                self._desk.failures.report(method, error)
                outcome = ProtocolError(INTERNAL_ERROR, "Internal error")
        status = self._rules.error_status.get(outcome.code, 200)
        try:
            return status, error_message(self._id, outcome.code, outcome.message, outcome.data)
        except _UNENCODABLE:
            return status, error_message(self._id, outcome.code, "Error")

    def _put(self, message: bytes) -> bool:
        stream = self._stream or self._open_stream()
        return stream.put(event(message)) if self._log is None else self._log.add(message)

    async def _write(self, status: int, answer: bytes) -> None:
        if self._stream is None:
            if not self.gone:
                await self._respond(status, answer)
        elif self._log is not None:
            assert self._writing is not None
            self._log.finish(answer)  # read by whoever reads the stream now, or comes back for it
            await self._writing
        elif not self.gone:
            await _answer(self._send, answer, self._stream, self._writing)

    async def _respond(self, status: int, answer: bytes) -> None:
        if len(answer) <= LARGE_BYTES:
            await respond(self._send, status, answer)
            return
        waiting = PendingAnswer(len(answer))  # a pipelined request may wait for the client to read the answer before
        self._desk.unread.hold(waiting)

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                waiting.pending_bytes = 0  # from here on it is in the transport's buffer
            await self._send(message)

        await respond(send, status, answer)

    def _open_stream(self) -> EventStream:
        stream = self._stream = EventStream(self._send, self._desk.ping_s, self._desk.unread)
        self._writing = asyncio.ensure_future(stream.run())
        if self._events is not None:
            self._log = self._events.open(self._expect_nobody)
            self._log.attach(stream)
        return stream

    def _watch(self) -> None:
        """The call takes its time: see whether the client leaves, and keep the line alive."""
        loop = self._desk.loop
        self._door = loop.create_task(self._watch_door())
        self._timer = loop.call_later(self._desk.ping_s, self._keep_alive)

    async def _watch_door(self) -> None:
        await until_left(self._receive)
        if self._log is not None and self._stream is not None:
            self._log.lost(self._stream, self._desk.resume_s)
            return
        self.gone = True
        self._expect_nobody()
        if self._rules.leaving_cancels:
            self.cancel()

    def _expect_nobody(self) -> None:
        for answer in self._expected or ():
            if not answer.done():
                answer.set_exception(ClientGoneError())

    def _keep_alive(self) -> None:
        """Proxies close a connection on which nothing happens; from here on the stream pings by itself."""
        if not self._working or self.gone or self._stream is not None:
            return
        self._open_stream().put(PING)
        if self._log is not None:
            self._log.prime()

    def _close(self) -> None:
        self._desk.leave(self)
        self._stop_watching()
        if self._writing is not None:
            self._writing.cancel()

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._door is not None:
            self._door.cancel()


async def _answer(send: Send, answer: bytes, stream: EventStream | None, writing: asyncio.Task[None] | None) -> None:
    if stream is None:
        await respond(send, 200, answer)
        return
    assert writing is not None
    stream.close(event(answer))
    await writing
