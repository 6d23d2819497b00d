"""JSON-RPC over one duplex stream of messages: many calls at once, each answer to its own call. For stdio and SSE."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.lines import HEAD_BYTES, TAIL_BYTES, id_of_undecoded
from pointsman.core.model import Json
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    CallNotSentError,
    ConnectionLostError,
    Introduction,
    OnNotification,
    SignInNeededError,
)
from pointsman.router.downstream.talk.decoding import NO_RESULT, Message, decode, decode_off_loop, error_in
from pointsman.router.downstream.talk.handshake import UNCANCELLABLE
from pointsman.router.downstream.talk.question_routing import QuestionRouter
from pointsman.router.downstream.talk.request_meta import with_meta
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.server_messages import ServerMessages
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED, LISTEN, SUBSCRIPTION_ID

Send = Callable[[bytes, int | None], None]
"""Hands one encoded message to the transport, with the number of the call that fails if it cannot be delivered.
Never waits. Raises ConnectionLostError."""

_PING_S = 2.0  # after this long without an answer to a ping, the server is taken to have read what came before


class Multiplexer:
    """Sends calls and matches answers. Holds no task per call; only a question from the server gets one.

    The wire does not say which call a question belongs to: legacy calls take turns, see `QuestionRouter`.
    """

    def __init__(
        self,
        send: Send,
        limits: Limits,
        on_notification: OnNotification,
        router: QuestionRouter | None = None,
        on_plain_text: Callable[[bytes | bytearray], None] = lambda data: None,
    ) -> None:
        """`on_plain_text` is called with each message that is not JSON."""
        self._send = send
        self._on_plain_text = on_plain_text
        self._limits = limits
        self._on_notification = on_notification
        self._loop = asyncio.get_running_loop()
        self._router = router or QuestionRouter(ServerRecord(), shared_stream=True)
        self._messages = ServerMessages(limits, self._notified, self._reply, self._router)
        self._pending = self._messages.calls  # by number; each has a future
        self._number = 0
        self._over: asyncio.Future[str] = self._loop.create_future()
        self.introduction: Introduction | None = None  # None during the handshake: params go out as they are
        self.unsolicited = self._messages.unsolicited

    def introduced(self, introduction: Introduction) -> None:
        """The handshake is done."""
        self.introduction = introduction
        self._messages.modern = introduction.era == "modern"

    # ------------------------------------------------------------------ calls

    async def request(self, call: Call) -> Json:
        """As `Connection.request`."""
        known = self.introduction
        takes_turns = call.back is not None and known is not None and known.era == "legacy"
        turn = self._router.enter(call) if takes_turns else None
        try:
            if turn is not None:
                await self._router.wait_for(turn, call)
            answer = self._start(call)
            try:
                return await answer
            except asyncio.CancelledError:
                if answer.done() and not answer.cancelled():
                    answer.exception()  # an answer came as well: mark it as retrieved, or asyncio reports it
                raise
            finally:
                if not call.answered and self._pending.pop(call.number, None) is not None:
                    self._cancel_at_server(call.number, call)  # our caller was cancelled
                if self._messages.open_questions:
                    self._messages.end(call)
                # An error's traceback refers to this frame: with the future that has the error it would be a
                # reference cycle, which keeps the call and all its arguments until the garbage collector runs.
                call.answer = None
                del answer
        finally:
            if takes_turns:
                self._leave(call)

    def _leave(self, call: Call) -> None:
        if call.answered or self._over.done() or not self._router.linger(call):
            self._router.leave(call)
        else:
            self._after_ping(lambda: self._router.leave(call))

    def _start(self, call: Call) -> asyncio.Future[Json]:
        """Send `call` and return the future of its answer. Raises ConnectionLostError."""
        if self._over.done():
            raise CallNotSentError(self._over.result())
        self._number = number = call.number = self._number + 1
        known = self.introduction
        params = call.params if known is None else with_meta(call, known.era, known.version, number)
        answer: asyncio.Future[Json] = self._loop.create_future()
        call.answer = answer
        self._send(wire.encode({"jsonrpc": "2.0", "id": number, "method": call.method, "params": params}), number)
        self._pending[number] = call
        return answer

    def _after_ping(self, then: Callable[[], None]) -> None:
        """Call `then` once the server has read all that was sent so far, or has not answered a ping for too long."""
        ping = Call("ping", {})
        self._number = number = ping.number = self._number + 1
        ping.answer = self._loop.create_future()

        def over(done: asyncio.Future[Json]) -> None:
            if not done.cancelled():
                done.exception()  # an error is an answer, too
            then()

        ping.answer.add_done_callback(over)
        self._loop.call_later(_PING_S, self._abandon, number)
        self._pending[number] = ping
        try:
            self._send(wire.encode({"jsonrpc": "2.0", "id": number, "method": "ping"}), number)
        except ConnectionLostError:
            self._abandon(number)

    def _abandon(self, number: int) -> None:
        call = self._pending.pop(number, None)
        if call is not None and call.answer is not None:
            call.answer.cancel()

    def fail(self, number: int, error: Exception) -> None:
        """Fail one call and cancel it at the server, unless it is over already."""
        call = self._pending.pop(number, None)
        if call is None or call.answer is None or call.answer.done():
            return
        call.answer.set_exception(error)
        self._cancel_at_server(number, call)

    def _cancel_at_server(self, number: int, call: Call) -> None:
        if call.method in UNCANCELLABLE or self._over.done():
            return
        with suppress(ConnectionLostError):  # then the call is over at the server, too
            self._notify("notifications/cancelled", {"requestId": number})

    async def notify(self, method: str, params: Json) -> None:
        """As `Wire.notify`, for the handshake."""
        self._notify(method, params)

    def _notify(self, method: str, params: Json) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        self._send(wire.encode(message), None)

    def _reply(self, message: Json) -> None:
        with suppress(ConnectionLostError):  # then the server does not wait for it
            self._send(wire.encode(message), None)

    # ------------------------------------------------------------------ the end

    async def ended(self) -> str:
        return await asyncio.shield(self._over)

    def lost(self, reason: str | SignInNeededError, not_sent: int | None = None) -> None:
        """The stream is over: every call under way fails with `reason`. Only the first reason counts.

        `not_sent` is the number of a call that the server did not get.
        """
        if self._over.done():
            return
        why = str(reason)
        if isinstance(reason, str):
            self._over.set_result(reason)
        else:
            self._over.set_exception(reason)
            self._over.exception()  # marked as retrieved: perhaps nobody waits for the end
        self._messages.close(why)
        calls = [*self._pending.items()]
        self._pending.clear()
        for number, call in calls:
            if call.answer is not None and not call.answer.done():
                not_processed = reason if isinstance(reason, SignInNeededError) else CallNotSentError(why)
                call.answer.set_exception(not_processed if number == not_sent else ConnectionLostError(why))

    # ------------------------------------------------------------------ messages in

    def receive(self, data: Message) -> None:
        """Handle one message, as it came. What is not JSON-RPC is counted and otherwise ignored."""
        try:
            message = decode(data)
        except wire.InvalidJsonError:
            self._receive_undecodable(data)
            return
        if type(message) is dict and "method" not in message and not self._over.done():
            self._receive_answer(message, len(data))
        else:
            self._dispatch(message, len(data))

    async def receive_large(self, data: Message) -> None:
        """Handle a message over `OFF_LOOP_BYTES`; the transport must hand in nothing else before this is done."""
        try:
            message = await decode_off_loop(data)
        except wire.InvalidJsonError:
            self._receive_undecodable(data)
            return
        self._dispatch(message, len(data))

    def too_large(self, number: int | None) -> None:
        """A message over the limit was discarded: fail the call that it answered.

        Without its id, the only call under way is taken to be that call. Of several none is guessed, and the one that
        was answered ends at its deadline.
        """
        candidates = [key for key, call in self._pending.items() if call.method != LISTEN]
        if number is None and len(candidates) == 1:
            number = candidates[0]
        if number is not None:
            self.fail(number, BudgetExceededError(f"its answer is larger than {self._limits.result_bytes} bytes"))

    def _dispatch(self, message: Any, size: int) -> None:
        if self._over.done():
            return
        if type(message) is dict:
            method = message.get("method")
            if method is None:
                self._receive_answer(message, size)
            elif type(method) is str:
                self._receive_message(message, size)
            else:
                self._count_malformed(size)
        elif type(message) is list and message:  # a batch, which 2025-03-26 allows
            for part in message:
                self._dispatch(part if type(part) is dict else None, size // len(message))
        else:
            self._count_malformed(size)

    def _receive_answer(self, message: Json, size: int) -> None:
        number = message.get("id")
        call = self._pending.pop(number, None) if type(number) is int else None
        if call is None or call.answer is None:
            self.unsolicited.answers += 1
            self.unsolicited.charge(size)
            if type(number) is int:
                self._router.answered_late(number)
            return
        call.answered = True
        if call.answer.done():
            return
        result = message.get("result")
        if type(result) is dict:
            call.answer.set_result(result)
        else:
            call.answer.set_exception(error_in(message) or ConnectionLostError(NO_RESULT))

    def _receive_message(self, message: Json, size: int) -> None:
        """Handle a notification or a question."""
        try:
            self._messages.receive_shared(message, size)
        except BudgetExceededError as error:
            if error.call is not None:
                self.fail(error.call.number, error)
            if "id" in message:
                self._messages.refuse(message)

    def _notified(self, method: str, params: Json) -> None:
        if method != ACKNOWLEDGED or not self._acknowledges_replaced(params):
            self._on_notification(method, params)

    def _acknowledges_replaced(self, params: Json) -> bool:
        """Whether it names a request of ours that was replaced meanwhile. Ids that are not ours say nothing."""
        meta = params.get("_meta")
        named = str(meta.get(SUBSCRIPTION_ID)) if type(meta) is dict else ""
        ours = named.isdecimal() and len(named) < 19 and int(named) <= self._number
        return ours and int(named) not in self._pending

    def _receive_undecodable(self, data: Message) -> None:
        self._count_malformed(len(data))
        data = bytes(data) if isinstance(data, memoryview) else data
        number = id_of_undecoded(data[:HEAD_BYTES], data[-TAIL_BYTES:])
        if number is not None:
            self.fail(number, ConnectionLostError("its answer is not valid JSON"))
        else:
            self._on_plain_text(data)

    def _count_malformed(self, size: int) -> None:
        self.unsolicited.malformed += 1
        self.unsolicited.charge(size)
