"""Which call a question belongs to, where calls share one stream. Calls that may ask take turns.

On stdio, on SSE and on the standalone stream of a legacy HTTP server a question does not name the call it belongs to.
It is delivered only where one client alone can be meant:

- A tool that was seen to ask runs alone among all calls that may ask; one that answered without asking runs freely from
  then on. Both are remembered over restarts (`server_memory`).
- A tool that was never called runs alone as well, but only for `silent_s`: that long it waits for others, and others
  for it. After that calls run concurrently, and only the rules below decide where a question goes.
- Clients without any of the capabilities do not wait for each other: their questions are refused anyway. Neither do
  calls of one client session, because all their questions go to the same client.
- The candidates for a question are the calls under way when it arrives. If all belong to one client, that client is
  asked. If those that may ask belong to one client, the question waits until calls of quiet tools have been answered: a
  server answers a call after its questions, so none of those calls asked. In all other cases the server gets an error,
  and the candidate tools are suspected from then on: they take turns until one is seen to ask or to answer.
- A call that ended without the server's answer may still be running at the server. It lingers until the server has
  read the cancellation, and a question that it may have asked is refused. A server may ignore the cancellation, so
  questions go only to the same client until the server has answered that call, or `abandoned_s` have passed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.core.kinds import QUESTION_CAPABILITIES, declares
from pointsman.core.model import Caller, Json
from pointsman.router.downstream.connection import Call, CallNotSentError, ConnectionLostError
from pointsman.router.downstream.talk.server_memory import ServerRecord

_SEVERAL = (
    "several calls are under way, and this transport does not say which one asks; "
    "try again: from now on, the calls that may have asked take turns"
)
_OVER = "the call that may have asked this is over"
_UNABLE = "none of the clients whose calls are under way can be asked"
_MOST_HELD = 1_000
_Client = tuple[Caller, Json]  # and its capabilities, one object for each session


@dataclass(frozen=True, slots=True)
class Waits:
    """How long to wait, injected so that tests need not."""

    silent_s: float = 0.3  # for an unknown tool to ask, and for it to wait for tools that may ask
    held_s: float = 30.0  # for calls of quiet tools to end, while a question could be theirs
    turn_s: float = 300.0  # for a turn
    abandoned_s: float = 30.0  # for a server to finish a call that was cancelled


USUAL_WAITS = Waits()


class UnroutableQuestionError(Exception):
    """No client can be asked, because the call that asks is unknown. `str(error)` is the reason, for the server."""


@dataclass(slots=True, eq=False)
class _HeldQuestion:
    """A question that could belong to several calls."""

    candidates: dict[Call, bool]  # whether the tool of each was known to be quiet
    asker: asyncio.Future[Call | None]


class QuestionRouter:
    """The calls under way on one connection that have a client behind them."""

    def __init__(self, record: ServerRecord, *, shared_stream: bool, waits: Waits = USUAL_WAITS) -> None:
        self._record = record
        self._shared_stream = shared_stream  # all calls have one stream; otherwise each has its own
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._inside: dict[Call, str] = {}  # under way, in order of arrival, with the name of the tool
        self._turns: dict[Call, bool] = {}  # those inside that may ask, and whether their clients can be asked
        self._waiting: deque[tuple[Call, asyncio.Future[None]]] = deque()
        self._lingering: set[Call] = set()  # those inside that ended here, but not yet at the server
        self._abandoned: dict[int, _Client] = {}  # cancelled calls that the server may still run
        self._held: set[_HeldQuestion] = set()
        self._doubted: set[Call] = set()  # those inside that may have asked a question that was not routed

    # --- calls

    def enter(self, call: Call) -> asyncio.Future[None] | None:
        """Admit `call`, or return its turn, to be awaited with `wait_for`. Ends with `leave` in both cases."""
        if call.back is None:
            return None
        name = name_of(call)
        if name in self._record.quiet or not (self._shared_stream or self._record.asks_outside_calls):
            self._inside[call] = name
            return None
        if self._may_enter(call, first=not self._waiting):
            self._admit(call)
            return None
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((call, turn))
        if not self._record.may_ask(name):
            self._loop.call_later(self._waits.silent_s, self._admit_unknown, call, turn)
        return turn

    async def wait_for(self, turn: asyncio.Future[None], call: Call) -> None:
        """Wait for the turn of `call`, with its clock paused. Raises ConnectionLostError."""
        if call.clock is not None:
            call.clock.pause()
        try:
            async with asyncio.timeout(self._waits.turn_s):
                await turn
        except TimeoutError:
            raise ConnectionLostError(
                "calls before this one wait for answers from their clients, and this server must be asked one call "
                "at a time (`isolation: per-caller` would give each caller a connection of its own)"
            ) from None
        finally:
            if call.clock is not None:
                call.clock.resume()

    def leave(self, call: Call) -> None:
        """`call` is over, or no longer waits."""
        if call.back is None:
            return
        name = self._inside.pop(call, None)
        if name is not None:
            if call in self._lingering:
                self._lingering.discard(call)
                self._abandon(call)
            if self._held:
                self._route_held(call)
            if call.answered and name not in self._record.quiet and call not in self._doubted:
                self._record.finished(name)
            self._doubted.discard(call)
        else:
            self._leave_queue(call)
        turn = self._turns.pop(call, None)
        if turn is not None or self._waiting:
            self._admit_waiting()

    def linger(self, call: Call) -> bool:
        """`call` ends without an answer. False: it was never admitted, and may `leave` at once."""
        if call not in self._inside:
            return False
        self._lingering.add(call)
        for question in self._held:
            if call in question.candidates:
                _refuse(question, _OVER)
        return True

    def answered_late(self, number: int) -> None:
        """The server has answered a cancelled call, so no further question belongs to it."""
        self._abandoned.pop(number, None)
        self._lingering = {call for call in self._lingering if call.number != number}

    def _abandon(self, call: Call) -> None:
        while len(self._abandoned) >= _MOST_HELD:
            del self._abandoned[next(iter(self._abandoned))]
        for client in _clients([call]):
            self._abandoned[call.number] = client
            self._loop.call_later(self._waits.abandoned_s, self._abandoned.pop, call.number, None)

    def close(self, reason: str) -> None:
        """The connection is over: end all waits."""
        waiting, self._waiting = self._waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(CallNotSentError(reason))
        for question in self._held:
            if not question.asker.done():
                question.asker.set_result(None)

    def _may_enter(self, call: Call, *, first: bool) -> bool:
        if self._is_quiet(call):
            return True  # it may have been seen to be quiet while it waited
        if not first:
            return False
        if not self._turns:
            return True
        if not can_be_asked(call):
            return not any(self._turns.values())
        return _one_client([*self._turns, call])

    def _admit(self, call: Call) -> None:
        name = self._inside[call] = name_of(call)
        if name in self._record.quiet:
            return
        self._turns[call] = can_be_asked(call)
        if not self._record.may_ask(name):
            self._loop.call_later(self._waits.silent_s, self._end_turn_of_silent, call)

    def _admit_unknown(self, call: Call, turn: asyncio.Future[None]) -> None:
        """Most tools never ask, so an unknown one does not wait as long as a person takes to answer."""
        if not turn.done() and not self._record.may_ask(name_of(call)):
            self._leave_queue(call)
            self._inside[call] = name_of(call)
            turn.set_result(None)

    def _leave_queue(self, call: Call) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not call)

    def _end_turn_of_silent(self, call: Call) -> None:
        if call in self._turns and not self._record.may_ask(name_of(call)):
            del self._turns[call]
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        kept: deque[tuple[Call, asyncio.Future[None]]] = deque()
        for call, turn in self._waiting:
            if turn.done():
                continue
            if self._may_enter(call, first=not kept):
                self._admit(call)
                turn.set_result(None)
            else:
                kept.append((call, turn))
        self._waiting = kept

    # --- questions

    async def asker(self) -> Call | None:
        """Return the call that a question, which has just arrived, belongs to. None: no call is under way.

        Raises:
            UnroutableQuestionError: several calls may have asked.
        """
        self._record.asks_outside_calls = True  # matters only where calls have streams of their own
        if not self._inside:
            return None
        question = _HeldQuestion({call: self._is_quiet(call) for call in self._inside}, self._loop.create_future())
        if self._lingering or self._others_abandoned():
            raise self._unroutable(question, _OVER)
        if len(self._inside) > 1 and not any(map(can_be_asked, self._inside)):
            raise self._unroutable(question, _UNABLE)
        asker = _only_client(question.candidates)
        if asker is None:
            return await self._hold(question)
        self._record_asker(asker, question)
        return asker

    def _others_abandoned(self) -> bool:
        """Whether the question may come from a cancelled call of another client."""
        return bool(self._abandoned) and not _all_one([*_clients(self._inside), *self._abandoned.values()])

    async def _hold(self, question: _HeldQuestion) -> Call | None:
        """Wait until the other candidates, which are calls of quiet tools, have been answered."""
        may_ask = [call for call, quiet in question.candidates.items() if not quiet]
        if len(self._held) >= _MOST_HELD or (may_ask and not _one_client(may_ask)):
            raise self._unroutable(question, _SEVERAL)
        self._doubted.update(question.candidates)
        if not may_ask:
            self._suspect(question.candidates)
        self._held.add(question)
        try:
            async with asyncio.timeout(self._waits.held_s):
                return await question.asker
        except TimeoutError:
            self._suspect(question.candidates)
            raise UnroutableQuestionError(_SEVERAL) from None
        finally:
            self._held.discard(question)

    def _route_held(self, leaving: Call) -> None:
        """Route the held questions that only one client can have asked now that `leaving` is answered.

        Only a tool that is known to be quiet is trusted not to leave a question behind: any other may have ended
        without waiting for its answer.
        """
        for question in self._held:
            quiet = question.candidates.pop(leaving, None)
            if quiet is None or question.asker.done():
                continue
            asker = _only_client(question.candidates)
            if not quiet:
                _refuse(question, _OVER)
            elif asker is not None:
                self._record_asker(asker, question)
                question.asker.set_result(asker)

    def _unroutable(self, question: _HeldQuestion, reason: str) -> UnroutableQuestionError:
        self._doubted.update(question.candidates)
        self._suspect(call for call, quiet in question.candidates.items() if not quiet)
        return UnroutableQuestionError(reason)

    def _suspect(self, calls: Iterable[Call]) -> None:
        """Let calls of these tools take turns from now on, and wait for those under way."""
        for call in calls:
            self._record.suspect(name_of(call))
            if call in self._inside:
                self._turns[call] = can_be_asked(call)

    def _record_asker(self, asker: Call, question: _HeldQuestion) -> None:
        """The client of `asker` is asked. Where it has several calls, it does not matter which one asks."""
        if len(question.candidates) > 1:
            self._doubted.update(question.candidates)
            may_ask = [call for call, quiet in question.candidates.items() if not quiet]
            self._suspect(may_ask or question.candidates)
            return
        self._record.asked(name_of(asker))
        self._turns[asker] = can_be_asked(asker)  # from now on, if it ran freely so far

    def _is_quiet(self, call: Call) -> bool:
        return name_of(call) in self._record.quiet


def _refuse(question: _HeldQuestion, reason: str) -> None:
    if not question.asker.done():
        question.asker.set_exception(UnroutableQuestionError(reason))


def _only_client(candidates: Iterable[Call]) -> Call | None:
    """The last call of the only client among the candidates. None: there are several clients."""
    calls = list(candidates)
    return calls[-1] if calls and _one_client(calls) else None


def name_of(call: Call) -> str:
    """The tool's name, or the method where the call is not of a tool."""
    name = call.params.get("name") if call.method == "tools/call" else None
    return name if type(name) is str else call.method


def can_be_asked(call: Call) -> bool:
    return call.request is not None and any(
        declares(call.request.client.capabilities, question) for question in QUESTION_CAPABILITIES
    )


def _one_client(calls: Iterable[Call]) -> bool:
    """Whether all belong to one session of one caller.

    The capabilities of a session are one object, which identifies it; each modern request brings its own.
    """
    return _all_one(_clients(calls))


def _clients(calls: Iterable[Call]) -> list[_Client]:
    return [(each.request.caller, each.request.client.capabilities) for each in calls if each.request is not None]


def _all_one(clients: Sequence[_Client]) -> bool:
    caller, declared = clients[0]
    return all(one == caller and capabilities is declared for one, capabilities in clients)
