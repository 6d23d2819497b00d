"""Parked calls: a modern client is asked by an answer, and its retry brings what the call in the middle waits for."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pointsman.core.model import Caller, Json
from pointsman.core.sdk import INPUT_REQUIRED_METHODS
from pointsman.core.seams import REQUEST_CANCELLED, CannotAskError, ClientGoneError, ProtocolError
from pointsman.router.front.exchange import Exchange, Outcome
from pointsman.router.front.legacy.questions import check_may_ask
from pointsman.router.front.methods import invalid
from pointsman.router.front.modern.request_state import Seal, invalid_state
from pointsman.router.front.modern.response_shapes import wrong_with
from pointsman.router.front.state import FrontState

_PROGRESS: Final = "notifications/progress"
_HELD_MESSAGES: Final = 64  # said between two rounds, when there is nobody to hear it
_STILL_OPEN: Final = "The question is still open: repeat the request with a proper answer."
_LEGACY_FIELDS: Final = frozenset({"elicitationId", "task"})  # of a question; the modern era has them no more


class Parking:
    """All parked calls. Fits `Asker`."""

    def __init__(self, desk: FrontState, seal: Seal, stamp: Json, most: int, wait_s: float) -> None:
        self.desk = desk
        self.seal = seal
        self.stamp = stamp  # `_meta` of our results
        self.most = most
        self.wait_s = wait_s  # how long a question stays open
        self._parked: dict[str, ParkedCall] = {}
        self._by_exchange: dict[Exchange, ParkedCall] = {}

    def __len__(self) -> int:
        return len(self._parked)

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        call = self._by_exchange.get(exchange)
        asked = call.latest if call is not None else exchange
        if asked.request is None or asked.request.method not in INPUT_REQUIRED_METHODS:
            raise CannotAskError(f"A modern client cannot be asked {method} in the middle of this request.")
        check_may_ask(asked.request.client.capabilities, method, params)
        if call is None and not exchange.waiting:
            raise ClientGoneError
        return await (call or self._admit(exchange)).ask(method, params)

    async def resume(self, call_id: object, exchange: Exchange) -> Json:
        """The next question or the result, for a retry whose seal was good. Raises ProtocolError."""
        assert exchange.request is not None
        call = self._parked.get(call_id) if type(call_id) is str else None
        if call is None or call.caller != exchange.request.caller:
            raise invalid_state()
        return await call.resume(exchange, _responses(exchange.request.params))

    def end(self, which: Callable[[Caller], bool]) -> None:
        for call in list(self._parked.values()):
            if which(call.caller):
                call.end()

    def end_all(self) -> None:
        self.end(lambda caller: True)

    def callers(self) -> set[Caller]:
        return {call.caller for call in self._parked.values()}

    def forget(self, call: ParkedCall) -> None:
        self._parked.pop(call.id, None)
        self._by_exchange.pop(call.first, None)

    def _admit(self, exchange: Exchange) -> ParkedCall:
        assert exchange.request is not None
        token_id = exchange.request.caller.token_id
        waiting = sum(call.caller.token_id == token_id for call in self._parked.values())
        # A token that never answers must leave room for the others; two in any case, or small limits could not be used.
        if len(self._parked) >= self.most or waiting >= max(2, self.most // 2):
            raise CannotAskError("Too many calls wait for an answer already. Answer some of them, or try again later.")
        call = ParkedCall(self, exchange)
        self._parked[call.id] = self._by_exchange[exchange] = call
        return call


@dataclass(slots=True, eq=False)
class Question:
    method: str
    params: Json
    answer: asyncio.Future[Json]


class ParkedCall:
    """One call from its first question on. The task of its first HTTP request does the work, answered or not."""

    __slots__ = ("_asked", "_held", "_outcome", "_parking", "_questions", "_round", "_timer", "_turn", "first", "id")

    def __init__(self, parking: Parking, first: Exchange) -> None:
        self.id = secrets.token_urlsafe(18)
        self.first = first
        self._parking = parking
        self._round: Exchange | None = first  # the request that waits now; none while the client thinks
        self._turn: asyncio.Future[Json] | None = None  # what a retry waits for
        self._asked = 0
        self._questions: dict[str, Question] = {}
        self._held: list[Json] = []
        self._outcome: Outcome | None = None  # kept where it came while nobody waited
        self._timer: asyncio.TimerHandle | None = None

    @property
    def latest(self) -> Exchange:
        return self._round or self.first

    @property
    def caller(self) -> Caller:
        assert self.first.request is not None
        return self.first.request.caller

    async def ask(self, method: str, params: Json) -> Json:
        self._asked += 1
        key = f"q{self._asked}"
        loop = self._parking.desk.loop
        question = self._questions[key] = Question(method, _as_modern(params), loop.create_future())
        loop.call_soon(self._hand_over)  # not at once: what is asked in the same breath goes into the same answer
        try:
            return await question.answer
        finally:
            del self._questions[key]
            if self._round is self.first and not self._questions:
                self._parking.forget(self)  # over before it could be asked; the call is a plain one again

    async def resume(self, exchange: Exchange, responses: Json) -> Json:
        """Raises ProtocolError: also for an answer that is none, and then the question stays open."""
        self._check(responses)
        loop = self._parking.desk.loop
        self._stop_timer()
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(ProtocolError(REQUEST_CANCELLED, "A newer retry has taken over"))
        turn: asyncio.Future[Json] = loop.create_future()
        self._turn = turn
        self._round = exchange
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and not question.answer.done():
                question.answer.set_result(response)
        held, self._held = self._held, []
        for message in held:
            self.say(message)
        if self._outcome is not None:
            self._settle(self._outcome)
        else:
            loop.call_soon(self._hand_over)  # where something is still, or again, without an answer
        try:
            return await turn
        except asyncio.CancelledError:  # the client left: in this era that ends the call
            if self._turn is turn:
                self.end()
            raise

    def _check(self, responses: Json) -> None:
        """Before anything is done with any of them. Raises ProtocolError."""
        for key, response in responses.items():
            question = self._questions.get(key)
            wrong = wrong_with(question.method, response) if question is not None else None
            if wrong is not None:
                raise invalid(f"`inputResponses.{key}`: {wrong}. {_STILL_OPEN}")

    # Fits `Successor`

    def say(self, message: Json) -> bool:
        if self._round is None:
            if len(self._held) < _HELD_MESSAGES:
                self._held.append(message)
            return False
        if message.get("method") == _PROGRESS:
            assert self._round.request is not None
            token = self._round.request.client.progress_token  # each round has its own
            if token is None:
                return False
            message = {**message, "params": {**message["params"], "progressToken": token}}
        return self._round.say(message)

    def finish(self, outcome: Outcome) -> None:
        self._abandon_questions()
        if self._round is not None:
            self._settle(outcome)
        elif isinstance(outcome, ProtocolError) and outcome.code == REQUEST_CANCELLED:
            self.end()
        else:
            self._outcome = outcome  # until the retry comes, or the time is up

    def end(self) -> None:
        """Nobody will answer: the work is cancelled, and with it what it waits for downstream."""
        self._stop_timer()
        self._parking.forget(self)
        self.first.cancel()
        self._abandon_questions()

    def _settle(self, outcome: Outcome) -> None:
        self._stop_timer()
        self._parking.forget(self)
        if self._turn is None or self._turn.done():
            return
        if isinstance(outcome, ProtocolError):
            self._turn.set_exception(outcome)
        else:
            self._turn.set_result(outcome)

    def _hand_over(self) -> None:
        """Answer the waiting request with the open questions."""
        waiting = self._round
        still_open = {key: question for key, question in self._questions.items() if not question.answer.done()}
        if waiting is None or not still_open:
            return
        assert waiting.request is not None
        parking = self._parking
        result: Json = {
            "resultType": "input_required",
            "inputRequests": {key: {"method": q.method, "params": q.params} for key, q in still_open.items()},
            "requestState": parking.seal.close(waiting.request, {"park": self.id}, parking.wait_s),
            "_meta": parking.stamp,
        }
        self._round = None
        self._timer = parking.desk.loop.call_later(parking.wait_s, self.end)
        if waiting is self.first:
            waiting.answer_early(result, self)
        elif self._turn is not None and not self._turn.done():
            self._turn.set_result(result)

    def _abandon_questions(self) -> None:
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(ClientGoneError())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _responses(params: Json) -> Json:
    """What the client answers. Raises ProtocolError."""
    responses = params.get("inputResponses")
    if responses is None:
        return {}
    if type(responses) is not dict or not all(type(response) is dict for response in responses.values()):
        raise invalid(f"`inputResponses` must be an object that has an object for each answer. {_STILL_OPEN}")
    return responses


def _as_modern(params: Json) -> Json:
    if _LEGACY_FIELDS.isdisjoint(params):
        return params
    return {key: value for key, value in params.items() if key not in _LEGACY_FIELDS}
