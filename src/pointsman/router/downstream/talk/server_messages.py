"""What a server sends besides its answers: notifications go to the client of their call, questions are answered.

A call has a budget for such messages. Messages that belong to no call are throttled instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from pointsman.config.model import Limits
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.core.seams import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    CannotAskError,
    Client,
    ClientGoneError,
    ProtocolError,
)
from pointsman.router.downstream.connection import BudgetExceededError, Call, OnNotification
from pointsman.router.downstream.talk.question_routing import QuestionRouter, UnroutableQuestionError

Reply = Callable[[Json], None]
"""Hands our reply to a server's request to the transport. Never waits, never raises."""

SET_LEVEL = "logging/setLevel"
LOG_LEVELS = {
    level: rank
    for rank, level in enumerate(("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"))
}
_LEGACY_DEFAULT_LEVEL = "info"  # for a legacy client that never set a level; a modern one that names none gets no log

_PROGRESS = "notifications/progress"
_LOG_MESSAGE = "notifications/message"
_ELICITATION_COMPLETE = "notifications/elicitation/complete"
_CANCELLED = "notifications/cancelled"
# Notifications that belong to a call; all others concern the server as a whole.
_CALL_NOTIFICATIONS = frozenset({_PROGRESS, _LOG_MESSAGE, _ELICITATION_COMPLETE})

_TIMES_A_CALL = 10  # per second, unsolicited messages may be ten times as many as those of one call in all
_BYTES_A_SECOND = 64 << 20
_MOST_FLOODING_S = 10

FLOODED = f"it sent messages that no call explains, without a pause, for {_MOST_FLOODING_S} s"
_ASKS_BY_RESULT = "a modern server asks by answering `input_required`"


class ServerMessages:
    """The messages of one connection that are not answers.

    `calls` are the calls under way, by their numbers. `router` finds the call that a question on a shared stream
    belongs to. Without `reply` questions are dropped: over HTTP there is no way to answer a modern server.
    """

    def __init__(
        self,
        limits: Limits,
        on_notification: OnNotification,
        reply: Reply | None = None,
        router: QuestionRouter | None = None,
    ) -> None:
        self._limits = limits
        self._on_notification = on_notification
        self._reply = reply
        self._router = router
        self._loop = asyncio.get_running_loop()
        self.open_questions: dict[asyncio.Task[Json], tuple[Call | None, Json]] = {}
        self._closed = False
        self.calls: dict[int, Call] = {}
        self.modern = False  # the server speaks the modern era, which has no questions outside of results
        self.unsolicited = UnsolicitedMessages(limits, self._loop.time)

    def receive_in_call(self, call: Call, message: Json) -> None:
        """Handle a message in the stream of `call`, whose bytes are counted where they are read.

        Raises:
            BudgetExceededError: there are too many.
        """
        _charge(call, 0, self._limits)
        self._handle(message, call)

    def receive_standalone(self, message: Json) -> None:
        """Handle a message in the standalone stream of an HTTP server, which may concern any call or none."""
        self.unsolicited.charge(0)
        if "method" in message:
            self._handle(message, None)

    def receive_shared(self, message: Json, size: int) -> None:
        """Handle a message in a stream that all calls share, and charge it to its call where that is known.

        Raises:
            BudgetExceededError: the call in it has received too much.
        """
        call = self._owner_of(message, None)
        if call is None:
            self.unsolicited.messages += 1
            self.unsolicited.charge(size)
        else:
            _charge(call, size, self._limits)
        self._handle(message, None)

    def end(self, call: Call) -> None:
        """Cancel the open questions of a call that is over."""
        for task, (asked_in, _) in self.open_questions.items():
            if asked_in is call:
                task.cancel()

    def close(self, reason: str) -> None:
        """The connection is over: open questions are dropped, and calls that wait for their turn fail."""
        self._closed = True
        if self._router is not None:
            self._router.close(reason)
        for task in self.open_questions:
            task.cancel()

    def refuse(self, message: Json) -> None:
        """Answer a question without asking a client: it has exceeded the budget of its call."""
        self._start(message, _answer(None, message))

    def _handle(self, message: Json, call: Call | None) -> None:
        method, params = message["method"], message.get("params")
        if type(method) is not str:
            return
        if type(params) is not dict:
            params = {}
        if "id" in message:
            self._question(message, call)
        elif method in _CALL_NOTIFICATIONS:
            owner = self._owner_of(message, call)
            if owner is not None:
                _notify_client(owner, method, params)
        elif method == _CANCELLED:
            self._withdraw(params.get("requestId"))
        else:
            self._on_notification(method, params)

    def _owner_of(self, message: Json, call: Call | None) -> Call | None:
        """The call that a message belongs to, as far as that can be known; `call` is the one in whose stream it is."""
        method, params = message.get("method"), message.get("params")
        if method == _PROGRESS:
            token = params.get("progressToken") if type(params) is dict else None
            return self.calls.get(token) if type(token) is int else None
        if method == _ELICITATION_COMPLETE:
            asked = params.get("elicitationId") if type(params) is dict else None
            return self._asked_in(asked) if type(asked) is str else None
        if method == _LOG_MESSAGE or "id" in message:
            return call or self._only_call()
        return None

    def _asked_in(self, elicitation_id: str) -> Call | None:
        return next((call for call in self.calls.values() if elicitation_id in (call.elicitations or ())), None)

    def _only_call(self) -> Call | None:
        """The only call under way with a client behind it."""
        only = None
        for call in self.calls.values():
            if call.back is None:
                continue
            if only is not None:
                return None
            only = call
        return only

    # ------------------------------------------------------------------ questions

    def _question(self, message: Json, call: Call | None) -> None:
        if self._reply is None:
            return
        if message["method"] == "ping":
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        else:
            self._start(message, self._route(message, call), call)

    def _start(self, message: Json, answer: Coroutine[None, None, Json], call: Call | None = None) -> None:
        task = self._loop.create_task(answer)
        self.open_questions[task] = (call, message)
        task.add_done_callback(self._answered)

    async def _route(self, message: Json, call: Call | None) -> Json:
        """Ask the client of `call`, or of the call that the router finds."""
        if self.modern:
            return await _answer(None, message, _ASKS_BY_RESULT)
        if call is None and self._router is not None and message["method"] in QUESTION_CAPABILITIES:
            try:
                call = await self._router.asker()
            except UnroutableQuestionError as reason:
                return await _answer(None, message, str(reason))
            task = asyncio.current_task()
            assert task is not None
            self.open_questions[task] = (call, message)
        return await _answer(call, message)

    def _answered(self, task: asyncio.Task[Json]) -> None:
        _, message = self.open_questions.pop(task)
        if task.cancelled():  # here and not in the task, which may have been cancelled before it began
            self._send(_error_reply(message, REQUEST_CANCELLED, "The call that this question belonged to is over"))
        elif (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "a server's question could not be answered", "exception": error, "task": task}
            )
            self._send(_error_reply(message, INTERNAL_ERROR, "The question could not be passed on"))
        else:
            self._send(task.result())

    def _send(self, reply: Json) -> None:
        if self._reply is not None and not self._closed:
            self._reply(reply)

    def _withdraw(self, question_id: object) -> None:
        for task, (_, message) in self.open_questions.items():
            if question_id is not None and message.get("id") == question_id:
                task.cancel()


def _charge(call: Call, size: int, limits: Limits) -> None:
    """Charge one message of `size` bytes to `call`. Raises BudgetExceededError."""
    call.messages += 1
    call.message_bytes += size
    if call.messages > limits.messages:
        raise BudgetExceededError(f"it sent more than {limits.messages} messages in one call", call)
    if call.message_bytes > limits.result_bytes:
        raise BudgetExceededError(f"it sent messages of more than {limits.result_bytes} bytes in one call", call)


def _notify_client(call: Call, method: str, params: Json) -> None:
    """Pass on a notification that belongs to `call`, if its client asked for such notifications."""
    if call.back is None or call.request is None:
        return
    client = call.request.client
    if method == _PROGRESS:
        if client.progress_token is None:
            return
        params = {**params, "progressToken": client.progress_token}
    elif method == _LOG_MESSAGE and not _reaches_level(client, params.get("level")):
        return
    call.back.notify(method, params)


def _reaches_level(client: Client, level: object) -> bool:
    least = client.log_level or (_LEGACY_DEFAULT_LEVEL if client.era == "legacy" else None)
    if least is None or not isinstance(level, str):
        return False
    return LOG_LEVELS.get(level, -1) >= LOG_LEVELS.get(least, 0)


async def _answer(call: Call | None, question: Json, why_none: str = "no call is under way") -> Json:
    """Ask the client of `call` and return our JSON-RPC reply; `why_none` says why there is no such call."""
    try:
        result = await _ask_client(call, question, why_none)
    except ProtocolError as error:
        return _error_reply(question, error.code, error.message, error.data)
    return {"jsonrpc": "2.0", "id": question.get("id"), "result": result}


async def _ask_client(call: Call | None, question: Json, why_none: str) -> Json:
    method = question.get("method")
    if method == "ping":
        return {}
    if method not in QUESTION_CAPABILITIES:
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found")
    if call is None or call.back is None:
        raise ProtocolError(INVALID_REQUEST, f"No client can be asked: {why_none}")
    params = question.get("params")
    if not isinstance(params, dict):
        params = {}
    if isinstance(elicitation_id := params.get("elicitationId"), str):
        call.elicitations = {elicitation_id, *(call.elicitations or ())}
    try:
        return await call.back.ask(method, params)
    except CannotAskError as reason:
        raise ProtocolError(METHOD_NOT_FOUND, str(reason) or "The client cannot be asked this") from None
    except ClientGoneError:
        raise ProtocolError(REQUEST_CANCELLED, "The client left before it answered") from None


def _error_reply(question: Json, code: int, message: str, data: object = None) -> Json:
    error: Json = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": question.get("id"), "error": error}


class UnsolicitedMessages:
    """Throttles messages that belong to no call. What exceeds the rate waits in the pipe, at the server's expense."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._messages_a_second = limits.messages * _TIMES_A_CALL
        self._clock = clock
        self._window_end = 0.0
        self._messages_now = 0
        self._bytes_now = 0
        self._seconds_over = 0
        self.over = False  # the rate of the current window is exceeded
        self.malformed = 0  # not JSON, not UTF-8, or not an object
        self.answers = 0  # late, unknown or sent twice
        self.messages = 0  # notifications and questions

    def charge(self, size: int, messages: int = 1) -> None:
        now = self._clock()
        if now >= self._window_end:
            flooding = self.over and now < self._window_end + 1.0
            self._seconds_over = self._seconds_over + 1 if flooding else 0
            self._window_end = now + 1.0
            self._messages_now = self._bytes_now = 0
        self._messages_now += messages
        self._bytes_now += size
        self.over = self._messages_now > self._messages_a_second or self._bytes_now > _BYTES_A_SECOND

    def pause_s(self) -> float:
        """Seconds for which the transport should stop reading."""
        return max(0.0, self._window_end - self._clock()) if self.over else 0.0

    @property
    def flooding(self) -> bool:
        """Whether the rate has been exceeded for so long that the connection should be given up."""
        return self._seconds_over >= _MOST_FLOODING_S
