"""JSON-RPC over one duplex stream of messages: many calls at once, each answer to its own call. For stdio and SSE."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.errors import DownstreamError
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR
from pointsman.router.downstream.connection import BudgetExceededError, Call, ConnectionLostError, Introduction, Noticed
from pointsman.router.downstream.talk import questions
from pointsman.router.downstream.talk.decoding import HEAD_BYTES, TAIL_BYTES, decode, decode_off_loop, id_of_undecoded
from pointsman.router.downstream.talk.envelope import with_envelope
from pointsman.router.downstream.talk.handshake import UNCANCELLABLE
from pointsman.router.downstream.talk.question_routing import QuestionRouter, UnroutableQuestionError
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED, SUBSCRIPTION_ID
from pointsman.router.downstream.talk.unsolicited import UnsolicitedMessages

Send = Callable[[bytes, int | None], None]
"""Hands one encoded message to the transport, and the number of the call that fails if it cannot be delivered.
Never waits. Raises ConnectionLostError."""

_HEARD_S = 2.0  # how long a server may take to answer a ping before it is taken to have heard what came before
_STANDING = "subscriptions/listen"  # open as long as the connection, and never answered with much


class Multiplexer:
    """Calls out, answers back. Holds no task per call; only a question from the server gets one.

    The wire does not say which call a question belongs to: legacy calls take turns, see `QuestionRouter`.
    """

    def __init__(self, send: Send, limits: Limits, noticed: Noticed, crowd: QuestionRouter | None = None) -> None:
        self._send = send
        self._limits = limits
        self._noticed = noticed
        self._loop = asyncio.get_running_loop()
        self._crowd = crowd or QuestionRouter(ServerRecord(), mixed=True)
        self._number = 0
        self._pending: dict[int, tuple[Call, asyncio.Future[Json]]] = {}
        self._open_questions: dict[asyncio.Task[None], tuple[Call | None, Json]] = {}
        self._over: asyncio.Future[str] = self._loop.create_future()
        self.introduction: Introduction | None = None  # set after the handshake; until then params go out as they are
        self.stray = UnsolicitedMessages(limits, self._loop.time)

    # --- calls

    async def request(self, method: str, params: Json) -> Json:
        """As `Wire` has it, for the handshake."""
        return await self.carry(Call(method, params))

    async def notify(self, method: str, params: Json) -> None:
        self._notify(method, params)

    async def carry(self, call: Call) -> Json:
        """As `Connection.request`."""
        known = self.introduction
        if call.back is None or known is None or known.era == "modern":
            return await self._exchange(call)
        turn = self._crowd.enter(call)
        try:
            if turn is not None:
                await self._crowd.wait_for(turn, call)
            return await self._exchange(call)
        finally:
            if call.answered or self._over.done() or not self._crowd.linger(call):
                self._crowd.leave(call)
            else:
                self._when_heard(lambda: self._crowd.leave(call))

    async def _exchange(self, call: Call) -> Json:
        if self._over.done():
            raise ConnectionLostError(self._over.result())
        self._number = number = call.number = self._number + 1
        known = self.introduction
        params = call.params if known is None else with_envelope(call, known.era, known.version, number)
        future: asyncio.Future[Json] = self._loop.create_future()
        self._send(wire.encode({"jsonrpc": "2.0", "id": number, "method": call.method, "params": params}), number)
        self._pending[number] = (call, future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.exception()  # an answer came as well: it is not missed, so asyncio need not report it
            raise
        finally:
            if self._pending.pop(number, None) is not None:  # nobody answered: our caller was cancelled
                self._cancel_at_server(number, call)
            if self._open_questions:
                self._withdraw_questions(call)

    def _when_heard(self, then: Callable[[], None]) -> None:
        """Call `then` when the server has read all that was sent so far, or does not say so for too long."""
        self._number = number = self._number + 1
        heard: asyncio.Future[Json] = self._loop.create_future()

        def over(done: asyncio.Future[Json]) -> None:
            if not done.cancelled():
                done.exception()  # an error is an answer, too
            then()

        heard.add_done_callback(over)
        self._loop.call_later(_HEARD_S, self._given_up, number)
        self._pending[number] = (Call("ping", {}), heard)
        try:
            self._send(wire.encode({"jsonrpc": "2.0", "id": number, "method": "ping"}), number)
        except ConnectionLostError:
            self._given_up(number)

    def _given_up(self, number: int) -> None:
        entry = self._pending.pop(number, None)
        if entry is not None and not entry[1].done():
            entry[1].cancel()

    def _cancel_at_server(self, number: int, call: Call) -> None:
        if call.method in UNCANCELLABLE or self._over.done():
            return
        with suppress(ConnectionLostError):  # then there is nothing left to cancel
            self._notify("notifications/cancelled", {"requestId": number})

    def _notify(self, method: str, params: Json) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        self._send(wire.encode(message), None)

    # --- the end

    async def ended(self) -> str:
        return await asyncio.shield(self._over)

    def lost(self, reason: str) -> None:
        """The stream is over: every call under way fails with `reason`. Only the first reason counts."""
        if self._over.done():
            return
        self._over.set_result(reason)
        self._crowd.close(reason)
        pending, self._pending = self._pending, {}
        for _, future in pending.values():
            if not future.done():
                future.set_exception(ConnectionLostError(reason))
        for task in self._open_questions:
            task.cancel()

    # --- messages in

    def received(self, data: bytes | bytearray) -> None:
        """One message, as it came. What is not JSON-RPC is counted and otherwise ignored."""
        try:
            message = decode(data)
        except wire.InvalidJsonError:
            self._unreadable(data)
            return
        self._dispatch(message, len(data))

    async def received_large(self, data: bytes | bytearray) -> None:
        """The same for a message over `OFF_LOOP_BYTES`; the transport must hand in nothing else before it is done."""
        try:
            message = await decode_off_loop(data)
        except wire.InvalidJsonError:
            self._unreadable(data)
            return
        self._dispatch(message, len(data))

    def too_large(self, number: int | None) -> None:
        """A message over the limit was thrown away. Without its id the only call under way is taken to be its own;
        with several under way none is guessed, and the one that it answered ends at its time limit."""
        candidates = [key for key, (call, _) in self._pending.items() if call.method != _STANDING]
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
                self._answered(message, size)
            elif type(method) is str:
                self._heard(method, message, size)
            else:
                self._noise(size)
        elif type(message) is list and message:  # a batch, which 2025-03-26 allows
            for part in message:
                self._dispatch(part if type(part) is dict else None, size // len(message))
        else:
            self._noise(size)

    def _noise(self, size: int) -> None:
        self.stray.noise += 1
        self.stray.charge(size)

    def _unreadable(self, data: bytes | bytearray) -> None:
        self._noise(len(data))
        number = id_of_undecoded(data[:HEAD_BYTES], data[-TAIL_BYTES:])
        if number is not None:
            self.fail(number, ConnectionLostError("its answer is not valid JSON"))

    def _answered(self, message: Json, size: int) -> None:
        number = message.get("id")
        entry = self._pending.pop(number, None) if type(number) is int else None
        if entry is None:
            self.stray.answers += 1
            self.stray.charge(size)
            if type(number) is int:
                self._crowd.answered_late(number)
            return
        call, future = entry
        call.answered = True
        if future.done():
            return
        result = message.get("result")
        if type(result) is dict:
            future.set_result(result)
        else:
            future.set_exception(_refusal(message.get("error")))

    def fail(self, number: int, error: Exception) -> None:
        """Fail one call and tell the server to cancel it. Nothing happens if it is over already."""
        entry = self._pending.pop(number, None)
        if entry is None or entry[1].done():
            return
        entry[1].set_exception(error)
        self._cancel_at_server(number, entry[0])

    # --- what the server says and asks

    def _heard(self, method: str, message: Json, size: int) -> None:
        params = message.get("params")
        if type(params) is not dict:
            params = {}
        if "id" in message:
            self._asked(message, size)
        elif method in questions.SAID_IN_A_CALL:
            number = self._spoken_of(method, params)
            if self._counted(number, size) and type(number) is int:
                questions.tell(self._pending[number][0], method, params)
        elif method == "notifications/cancelled":
            self.stray.charge(size)
            self._question_withdrawn(params.get("requestId"))
        else:
            self.stray.charge(size)
            if method != ACKNOWLEDGED or not self._acknowledges_what_is_over(params):
                self._noticed(method, params)

    def _acknowledges_what_is_over(self, params: Json) -> bool:
        """Whether it names a request of ours that was replaced before this came. Ids that are not ours say nothing."""
        meta = params.get("_meta")
        named = str(meta.get(SUBSCRIPTION_ID)) if type(meta) is dict else ""
        ours = named.isdecimal() and len(named) < 19 and int(named) <= self._number
        return ours and int(named) not in self._pending

    def _spoken_of(self, method: str, params: Json) -> object:
        """The number of the call that a notification belongs to, as far as that can be known."""
        if method == questions.PROGRESS:
            return params.get("progressToken")
        if method == questions.ELICITATION_DONE:
            return next((key for key, (call, _) in self._pending.items() if questions.asked_by(call, params)), None)
        return self._only_call()

    def _counted(self, number: object, size: int) -> bool:
        """Charge a message to its call. False: there is none, or the call has failed of it."""
        entry = self._pending.get(number) if type(number) is int else None
        if entry is None or type(number) is not int:
            self.stray.messages += 1
            self.stray.charge(size)
            return False
        try:
            questions.count(entry[0], size, self._limits)
        except BudgetExceededError as broken:
            self.fail(number, broken)
            return False
        return True

    def _only_call(self) -> int | None:
        found = None
        for number, (call, _) in self._pending.items():
            if call.back is None:
                continue
            if found is not None:
                return None
            found = number
        return found

    def _asked(self, message: Json, size: int) -> None:
        number = self._only_call()
        known = self._counted(number, size)
        if message["method"] == "ping":
            self._reply({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            return
        broken = number is not None and not known  # the call has just failed of this very message
        task = self._loop.create_task(self._refuse(message) if broken else self._answer(message))
        self._open_questions[task] = (None, message)
        task.add_done_callback(self._question_done)

    async def _answer(self, message: Json) -> None:
        if self.introduction is not None and self.introduction.era == "modern":
            self._reply(await questions.answer(None, message, "a modern server asks by answering `input_required`"))
            return
        if message["method"] not in QUESTION_CAPABILITIES:
            await self._refuse(message)
            return
        try:
            call = await self._crowd.asker()
        except UnroutableQuestionError as reason:
            self._reply(await questions.answer(None, message, str(reason)))
            return
        task = asyncio.current_task()
        assert task is not None
        self._open_questions[task] = (call, message)
        self._reply(await questions.answer(call, message))

    async def _refuse(self, message: Json) -> None:
        self._reply(await questions.answer(None, message))

    def _reply(self, message: Json) -> None:
        with suppress(ConnectionLostError):  # then nobody waits for it
            if not self._over.done():
                self._send(wire.encode(message), None)

    def _question_done(self, task: asyncio.Task[None]) -> None:
        _, message = self._open_questions.pop(task)
        if task.cancelled():  # here and not in the task, which may have been cancelled before it began
            self._reply(questions.cancelled_answer(message))
            return
        error = task.exception()
        if error is None:
            return
        self._loop.call_exception_handler(
            {"message": "a server's question could not be answered", "exception": error, "task": task}
        )
        failure: Json = {"code": INTERNAL_ERROR, "message": "The question could not be passed on"}
        self._reply({"jsonrpc": "2.0", "id": message.get("id"), "error": failure})

    def _withdraw_questions(self, call: Call) -> None:
        for task, (asked_in, _) in self._open_questions.items():
            if asked_in is call:
                task.cancel()

    def _question_withdrawn(self, server_id: object) -> None:
        for task, (_, message) in self._open_questions.items():
            if server_id is not None and message.get("id") == server_id:
                task.cancel()


def _refusal(error: object) -> Exception:
    if type(error) is not dict:
        return ConnectionLostError("it answered with neither a result nor an error")
    code, message = error.get("code"), error.get("message")
    return DownstreamError(
        code if type(code) is int else INTERNAL_ERROR, message if type(message) is str else "", error.get("data")
    )
