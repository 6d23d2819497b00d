"""Parked calls: a modern client receives a question as a response and answers it with a retry of its request."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pointsman.config.model import CurrentConfig
from pointsman.core.model import Caller, Json
from pointsman.core.sdk import INPUT_REQUIRED_METHODS
from pointsman.core.seams import REQUEST_CANCELLED, CannotAskError, ClientGoneError, FrontRequest, ProtocolError
from pointsman.router.front.exchange import Exchange, Outcome
from pointsman.router.front.methods import invalid
from pointsman.router.front.modern.request_state import Seal, invalid_state
from pointsman.router.front.questions import check_may_ask
from pointsman.router.front.state import FrontState

_PROGRESS: Final = "notifications/progress"
_COLLECT_S: Final = 0.05  # for further questions after one: a server's messages may arrive one by one
_HELD_MESSAGES: Final = 64  # sent between two rounds, when no client is connected
_STILL_OPEN: Final = "The question is still open: repeat the request with a proper answer."
_LEGACY_FIELDS: Final = frozenset({"elicitationId", "task"})  # of a question; the modern era does not define them
_ACTIONS: Final = ("accept", "decline", "cancel")
_ROLES: Final = ("user", "assistant")


class ParkedCalls:
    """All parked calls. Fits `Asker`."""

    def __init__(self, state: FrontState, current: CurrentConfig, seal: Seal, meta: Json) -> None:
        """`meta`: `_meta` of our results."""
        self.state = state
        self.seal = seal
        self.meta = meta
        self._current = current
        self._parked: dict[str, ParkedCall] = {}
        self._by_exchange: dict[Exchange, ParkedCall] = {}

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def wait_s(self) -> float:
        """How long a question stays open."""
        return self._current.config.limits.parked_s

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
        """Return the next question or the result, for a retry with a valid seal. Raises ProtocolError."""
        assert exchange.request is not None
        call = self._parked.get(call_id) if type(call_id) is str else None
        if call is None or call.caller != exchange.request.caller:
            raise invalid_state()
        return await call.resume(exchange, _responses(exchange.request.params))

    def sealed(self, call_id: str) -> Json:
        """What a client carries of a parked call."""
        return {"park": call_id, "at": self.state.replica} if self.state.replica else {"park": call_id}

    def replica_of(self, request: FrontRequest) -> str | None:
        """Return the replica where the call waits that a request resumes; None: it resumes none, or none is named."""
        try:
            at = self.seal.open(request, request.params["requestState"]).get("at")
        except ProtocolError:
            return None  # the endpoint says why
        return at if type(at) is str else None

    def end(self, matches: Callable[[Caller], bool]) -> None:
        for call in list(self._parked.values()):
            if matches(call.caller):
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
        most = self._current.config.limits.parked
        # One token may use half, so that it cannot block the others; at least two, so that small limits are usable.
        if len(self._parked) >= most or waiting >= max(2, most // 2):
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
    """One call from its first question on. The work stays in the task of the first HTTP request, even once answered."""

    __slots__ = ("_asked", "_calls", "_held", "_outcome", "_questions", "_result", "_round", "_timer", "first", "id")

    def __init__(self, calls: ParkedCalls, first: Exchange) -> None:
        self.id = secrets.token_urlsafe(18)
        self.first = first
        self._calls = calls
        self._round: Exchange | None = first  # the request that waits now; None until the client retries
        self._result: asyncio.Future[Json] | None = None  # of the latest retry
        self._asked = 0
        self._questions: dict[str, Question] = {}
        self._held: list[Json] = []
        self._outcome: Outcome | None = None  # stored if the work ends while no request waits
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
        loop = self._calls.state.loop
        question = self._questions[key] = Question(method, _as_modern(params), loop.create_future())
        loop.call_later(_COLLECT_S, self._send_questions)  # concurrent questions go into one response
        try:
            return await question.answer
        finally:
            del self._questions[key]
            if self._round is self.first and not self._questions:
                self._calls.forget(self)  # ended before it was sent; the call is not parked any more

    async def resume(self, exchange: Exchange, responses: Json) -> Json:
        """Raises ProtocolError, also for an invalid answer; the question stays open then."""
        self._check(responses)
        loop = self._calls.state.loop
        self._stop_timer()
        if self._result is not None and not self._result.done():
            self._result.set_exception(
                ProtocolError(REQUEST_CANCELLED, "A newer retry has replaced this one. Read the answer to that.")
            )
        result: asyncio.Future[Json] = loop.create_future()
        self._result = result
        self._round = exchange
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and not question.answer.done():
                question.answer.set_result(response)
        held, self._held = self._held, []
        for message in held:
            self.send_message(message)
        if self._outcome is not None:
            self._settle(self._outcome)
        else:
            loop.call_soon(self._send_questions)  # if any is still, or again, unanswered
        try:
            return await result
        except asyncio.CancelledError:  # the client disconnected, which cancels the call in this era
            if self._result is result:
                self.end()
            raise

    def _check(self, responses: Json) -> None:
        """Check all responses before any is used. Raises ProtocolError."""
        for key, response in responses.items():
            question = self._questions.get(key)
            problem = response_problem(question.method, response) if question is not None else None
            if problem is not None:
                raise invalid(f"`inputResponses.{key}`: {problem}. {_STILL_OPEN}")

    # Fits `Successor`

    def send_message(self, message: Json) -> bool:
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
        return self._round.send_message(message)

    def finish(self, outcome: Outcome) -> None:
        self._abandon_questions()
        if self._round is not None:
            self._settle(outcome)
        elif isinstance(outcome, ProtocolError) and outcome.code == REQUEST_CANCELLED:
            self.end()
        else:
            self._outcome = outcome  # until the client retries or the call expires

    def end(self) -> None:
        """Cancel the work, and with it the request to the server."""
        self._stop_timer()
        self._calls.forget(self)
        self.first.cancel()
        self._abandon_questions()

    def _settle(self, outcome: Outcome) -> None:
        self._stop_timer()
        self._calls.forget(self)
        if self._result is None or self._result.done():
            return
        if isinstance(outcome, ProtocolError):
            self._result.set_exception(outcome)
        else:
            self._result.set_result(outcome)

    def _send_questions(self) -> None:
        """Respond to the waiting request with the open questions."""
        waiting = self._round
        still_open = {key: question for key, question in self._questions.items() if not question.answer.done()}
        if waiting is None or not still_open:
            return
        assert waiting.request is not None
        calls = self._calls
        result: Json = {
            "resultType": "input_required",
            "inputRequests": {key: {"method": q.method, "params": q.params} for key, q in still_open.items()},
            "requestState": calls.seal.close(waiting.request, calls.sealed(self.id), calls.wait_s),
            "_meta": calls.meta,
        }
        self._round = None
        self._timer = calls.state.loop.call_later(calls.wait_s, self.end)
        if waiting is self.first:
            waiting.answer_early(result, self)
        elif self._result is not None and not self._result.done():
            self._result.set_result(result)

    def _abandon_questions(self) -> None:
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(ClientGoneError())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _responses(params: Json) -> Json:
    """Return the client's answers. Raises ProtocolError."""
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


def response_problem(method: str, response: Json) -> str | None:
    """Return why `response` is not a valid answer to a question of that method, or None if it is."""
    return _CHECKS[method](response)


def _elicitation(response: Json) -> str | None:
    if response.get("action") not in _ACTIONS:
        return "`action` must be one of " + ", ".join(_ACTIONS)
    if type(response.get("content", {})) not in (dict, type(None)):
        return "`content` must be an object"
    return None


def _sampling(response: Json) -> str | None:
    if response.get("role") not in _ROLES:
        return "`role` must be one of " + ", ".join(_ROLES)
    if type(response.get("model")) is not str:
        return "`model` must be a string"
    content = response.get("content")
    blocks = content if type(content) is list else [content]
    if not all(type(block) is dict and type(block.get("type")) is str for block in blocks):
        return "`content` must be a content block with a `type`, or a list of such"
    return None


def _roots(response: Json) -> str | None:
    roots = response.get("roots")
    if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
        return "`roots` must be a list of objects with a `uri`"
    return None


_CHECKS: Final[dict[str, Callable[[Json], str | None]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
    "roots/list": _roots,
}
