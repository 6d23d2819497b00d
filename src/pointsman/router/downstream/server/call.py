"""One call to a server: its total deadline, and the rounds of questions that a modern server asks in its results."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from msgspec import Struct

from pointsman.core.errors import DownstreamError
from pointsman.core.kinds import QUESTION_CAPABILITIES, declares
from pointsman.core.model import Json
from pointsman.core.seams import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    BackChannel,
    CannotAskError,
    ClientGoneError,
    FrontRequest,
    ProtocolError,
)
from pointsman.router.downstream.connection import Call, CallNotSentError, Connection, ConnectionLostError
from pointsman.router.downstream.talk.question_rules import ForbiddenQuestionError, check_question
from pointsman.router.serving.shares import FairQueue
from pointsman.router.serving.timer_queue import TimerQueue

_ROUNDS = 10  # bounds a server that never stops asking
COMPLETE = "complete"  # the type of a result that is an answer; the default
_SHOWN_CHARS = 40  # of a server's own word


class Deadline(Struct, eq=False):  # a struct, because each call makes one
    """`with Deadline(loop, 60, back) as deadline`: raises TimeoutError at its end, whatever the server sends meanwhile.

    Fits `BackChannel`, with the clock paused while the client is asked, and `Clock`. `asyncio.timeout` would look up
    the running loop five times; on Python 3.11 each of them is a system call.
    """

    _loop: asyncio.AbstractEventLoop
    _left_s: float
    _back: BackChannel
    _queue: FairQueue | None = None  # the call holds one of its slots, and releases it while the client is asked
    _token_id: str = ""
    _timers: TimerQueue[Deadline] | None = None  # with the same delay
    questions: bool = True  # whether the server may ask any
    # What follows is set once it runs.
    _due: float = 0.0
    _paused: int = 0  # how many questions are open
    _expired: bool = False
    _earlier_cancellations: int = 0  # of the task, not by us
    _task: asyncio.Task[Any] | None = None  # None: not entered, or over
    _timer: asyncio.TimerHandle | None = None  # None: paused

    def __enter__(self) -> Deadline:
        task = self._task = asyncio.current_task(self._loop)
        assert task is not None
        self._earlier_cancellations = task.cancelling()
        self._due = self._loop.time() + self._left_s
        if self._timers is not None:
            self._timers.add(self)
        else:
            self._timer = self._loop.call_later(self._left_s, self.expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timers is not None:
            self._timers.discard(self)
        elif self._timer is not None:
            self._timer.cancel()
        if self._paused and self._queue is not None:
            self._queue.resume(self._token_id)  # the caller that took the slot gives it back
        assert task is not None
        if self._expired and task.uncancel() <= self._earlier_cancellations and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def left_s(self) -> float:
        """How much time is left, unless the clock is paused."""
        return self._due - self._loop.time()

    def notify(self, method: str, params: Json) -> None:
        self._back.notify(method, params)

    async def ask(self, method: str, params: Json) -> Json:
        check_question(method, params, allowed=self.questions)
        self.pause()
        try:
            return await self._back.ask(method, params)
        finally:
            self.resume()

    def reachable(self) -> bool:
        return self._back.reachable()

    def pause(self) -> None:
        self._paused += 1
        if self._paused == 1 and self._task is not None and self._queue is not None:
            self._queue.pause(self._token_id)
        if self._paused == 1 and self._task is not None and not self._expired:
            self._left_s = max(self._due - self._loop.time(), 0.0)
            self._stop_timer()

    def resume(self) -> None:
        self._paused -= 1
        # The answer to a question may arrive when the call is over.
        if self._paused or self._task is None:
            return
        if self._queue is not None:
            self._queue.resume(self._token_id)
        if not self._expired:
            self._due = self._loop.time() + self._left_s
            self._timer = self._loop.call_later(self._left_s, self.expire)

    def expire(self) -> None:
        if self._task is None or self._paused:
            return  # it ended, or was paused, in the same round of the event loop
        self._timer = self._timers = None
        self._expired = True
        self._task.cancel()

    def _stop_timer(self) -> None:
        if self._timers is not None:
            self._timers.discard(self)
            self._timers = None
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def complete_with_input(
    connection: Connection, method: str, params: Json, request: FrontRequest, deadline: Deadline, result: Json
) -> Json:
    """Where a modern server answered `input_required`, ask a legacy client and repeat the call.

    A modern client gets `input_required` unchanged, and repeats the call itself.

    Raises:
        ConnectionLostError, BudgetExceededError, DownstreamError.
        ForbiddenQuestionError: the server may not ask that.
    """
    _check_is_question(result)
    if request.client.era == "modern":
        _check_askable(result, request.client.capabilities, deadline.questions)
        return result
    for _ in range(_ROUNDS):
        repeated = {**params, "inputResponses": await _responses(result, deadline)}
        if "requestState" in result:
            repeated["requestState"] = result["requestState"]
        try:
            result = await connection.request(Call(method, repeated, request, deadline, deadline))
        except CallNotSentError as error:
            raise ConnectionLostError(str(error)) from None  # the first round was sent
        if result.get("resultType", COMPLETE) == COMPLETE:
            return result
        _check_is_question(result)
    raise DownstreamError(INVALID_REQUEST, f"the server asked for more input {_ROUNDS} times in a row")


def _check_is_question(result: Json) -> None:
    """Refuse a result that is neither complete nor a question. Raises DownstreamError.

    Other kinds of results (a task, for example) belong to extensions that this gateway does not support: a client
    could not use them, because its next request would not reach that server.
    """
    kind = result.get("resultType")
    if kind == "input_required":
        return
    shown = kind if isinstance(kind, str) and len(kind) <= _SHOWN_CHARS else type(kind).__name__
    raise DownstreamError(
        INTERNAL_ERROR, f"the server answered with a result of type `{shown}`, which this gateway does not support"
    )


def _check_askable(result: Json, capabilities: Json, allowed: bool) -> None:
    """Refuse questions that the server may not ask, or that the client did not declare.

    Raises:
        ForbiddenQuestionError, DownstreamError.
    """
    for question in _questions(result).values():
        method = _method(question)
        check_question(method, question.get("params") if isinstance(question, dict) else None, allowed=allowed)
        if method in QUESTION_CAPABILITIES and not declares(capabilities, method):
            raise _cannot_answer(method)


def _cannot_answer(method: str) -> DownstreamError:
    return DownstreamError(INVALID_REQUEST, f"the server needs `{method}`, which this client does not support")


def _questions(result: Json) -> Json:
    questions = result.get("inputRequests") or {}
    if not isinstance(questions, dict):
        raise DownstreamError(INVALID_REQUEST, "the server asked for input in a form that cannot be read")
    return questions


def _method(question: object) -> str:
    method = question.get("method") if isinstance(question, dict) else None
    return method if isinstance(method, str) else ""


async def _responses(result: Json, back: BackChannel) -> Json:
    return {key: await _ask(question, back) for key, question in _questions(result).items()}


async def _ask(question: object, back: BackChannel) -> Json:
    method = _method(question)
    if not isinstance(question, dict) or method not in QUESTION_CAPABILITIES:
        raise DownstreamError(INVALID_REQUEST, "the server asked for input of an unknown kind")
    params = question.get("params")
    try:
        return await back.ask(method, params if isinstance(params, dict) else {})
    except ForbiddenQuestionError:
        raise
    except CannotAskError:
        raise _cannot_answer(method) from None
    except ClientGoneError:
        raise DownstreamError(REQUEST_CANCELLED, "the client left before it answered") from None
    except ProtocolError as error:
        raise DownstreamError(error.code, error.message, error.data) from None
