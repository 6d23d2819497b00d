"""What a server says and asks over HTTP besides its answers: in the stream of a call, or in a standing one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from pointsman.config.model import Limits
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.router.downstream.connection import Call, ConnectionLostError, Noticed
from pointsman.router.downstream.http.answer import TakeMessage
from pointsman.router.downstream.talk import questions
from pointsman.router.downstream.talk.question_routing import QuestionRouter, UnroutableQuestionError
from pointsman.router.downstream.talk.unsolicited import UnsolicitedMessages
from pointsman.router.serving.tasks import TaskSet

Reply = Callable[[Json], Awaitable[None]]
"""Sends our answer to a server's question. Raises ConnectionLostError."""

_REPLY_S = 10.0


class HttpServerMessages:
    """Passes on what is said in a call to its client, and answers what is asked.

    `reply` and `crowd` are None in the modern era, which knows no questions.
    """

    def __init__(
        self,
        limits: Limits,
        noticed: Noticed,
        background: TaskSet,
        reply: Reply | None = None,
        crowd: QuestionRouter | None = None,
    ) -> None:
        self._limits = limits
        self._noticed = noticed
        self._tasks = background
        self._reply = reply
        self._crowd = crowd
        self._calls: dict[int, Call] = {}
        self._open_questions: dict[asyncio.Task[None], tuple[Call | None, Json]] = {}
        self._closed = False
        self.stray = UnsolicitedMessages(limits, asyncio.get_running_loop().time)

    def begin(self, number: int, call: Call) -> TakeMessage:
        """`call` is under way. Messages in its own stream go to what is returned, which raises BudgetBroken."""
        self._calls[number] = call
        return partial(self._in_call, call)

    def end(self, number: int) -> None:
        call = self._calls.pop(number)
        for task, (asked_in, _) in self._open_questions.items():
            if asked_in is call:
                task.cancel()

    def _in_call(self, call: Call, message: Json) -> None:
        questions.count(call, 0, self._limits)  # the bytes of a call's stream are counted where they are read
        self._heard(call, message)

    def at_large(self, message: Json) -> None:
        """A message of a standing stream, which may concern any call or none."""
        self.stray.charge(0)
        if "method" in message:
            self._heard(None, message)

    def _heard(self, call: Call | None, message: Json) -> None:
        method, params = message["method"], message.get("params")
        if type(method) is not str:
            return
        if type(params) is not dict:
            params = {}
        if "id" in message:
            self._asked(call, message)
        elif method in questions.SAID_IN_A_CALL:
            if method == questions.PROGRESS:
                token = params.get("progressToken")
                call = self._calls.get(token) if type(token) is int else None
            elif method == questions.ELICITATION_DONE:
                call = next((each for each in self._calls.values() if questions.asked_by(each, params)), None)
            elif call is None:
                call = self._only_call()
            if call is not None:
                questions.tell(call, method, params)
        elif method == "notifications/cancelled":
            self._withdraw(params.get("requestId"))
        else:
            self._noticed(method, params)

    def _only_call(self) -> Call | None:
        asked = [call for call in self._calls.values() if call.back is not None]
        return asked[0] if len(asked) == 1 else None

    # ------------------------------------------------------------------ questions

    def _asked(self, call: Call | None, message: Json) -> None:
        if self._reply is None:
            return  # a modern server asks by answering `input_required`; there is no way to answer this
        task = self._tasks.spawn(self._answer(self._reply, call, message))
        self._open_questions[task] = (call, message)
        task.add_done_callback(self._open_questions.pop)

    async def _answer(self, reply: Reply, call: Call | None, message: Json) -> None:
        try:
            answer = await self._answer_of(call, message)
        except UnroutableQuestionError as reason:
            answer = await questions.answer(None, message, str(reason))
        except asyncio.CancelledError:
            if self._closed:
                raise
            answer = questions.cancelled_answer(message)
        with suppress(
            ConnectionLostError, TimeoutError
        ):  # the server has left, or will miss it: its call's own end tells
            async with asyncio.timeout(_REPLY_S):
                await reply(answer)

    async def _answer_of(self, call: Call | None, message: Json) -> Json:
        """Raises UnroutableQuestionError."""
        if call is None and self._crowd is not None and message["method"] in QUESTION_CAPABILITIES:
            call = await self._crowd.asker()
            task = asyncio.current_task()
            assert task is not None
            self._open_questions[task] = (call, message)
        return await questions.answer(call, message)

    def close(self) -> None:
        """Questions that are still open are dropped with the connection's background tasks, not answered."""
        self._closed = True

    def _withdraw(self, question_id: object) -> None:
        for task, (_, message) in self._open_questions.items():
            if question_id is not None and message.get("id") == question_id:
                task.cancel()
