"""Calls that share one stream: which call does a question belong to? Where the wire does not tell, calls take turns.

On stdio, on SSE and on the standing stream of a legacy HTTP server a question does not name the call it belongs to.
It is delivered only where one client alone can be meant:

- A tool that was seen to ask runs alone among all calls that may ask; one that answered without asking runs freely from
  then on. Both are remembered over restarts (`server_memory`).
- A tool that was never called runs alone as well, but only for `silent_s`: so long it waits for others, and others for
  it. After that calls run side by side, and what protects them is how a question is placed.
- Clients that cannot be asked anything do not wait for each other: their questions have one answer, a refusal. Neither
  do calls of one client session, because all their questions go to the same client.
- The candidates for a question are the calls that the server had when it asked. If all are of one client, that client
  is asked. If those that may ask are of one client, the question waits until calls of quiet tools have been answered: a
  server answers a call after its questions, so none of them was the asker. In all other cases the server gets an error,
  and the tools in question are suspected from then on: they take turns until one is seen to ask or to answer.
- A call that ended without the server's answer may still be asking over there. It lingers until the server has heard
  of its end, and a question that it may have asked is refused. A server may go on all the same, so questions are placed
  only with the same client until it has answered that call, or `abandoned_s` have passed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.core.kinds import QUESTION_CAPABILITIES, declares
from pointsman.core.model import Caller, Json
from pointsman.router.downstream.connection import Call, ConnectionLostError
from pointsman.router.downstream.talk.server_memory import ServerRecord

_SEVERAL = (
    "several calls are under way, and this transport does not tell which one asks; "
    "try again, because the calls that may be meant take turns from now on"
)
_OVER = "the call that may have asked this is over"
_UNABLE = "none of the clients whose calls are under way can be asked anything"
_MOST_HELD = 1_000
_Client = tuple[Caller, Json]  # and what it declared, which is kept once for each session


@dataclass(frozen=True, slots=True)
class Waits:
    """How long to wait, handed in so that tests need not."""

    silent_s: float = 0.3  # for an unknown tool to ask, or to wait for those that may
    held_s: float = 30.0  # for calls of quiet tools to end, while a question could be theirs
    turn_s: float = 300.0  # for a turn
    abandoned_s: float = 30.0  # for a server to go on with a call that was given up


USUAL_PATIENCE = Waits()


class UnroutableQuestionError(Exception):
    """No client can be asked, because the call that asks is not known. `str(error)` is the reason, for the server."""


@dataclass(slots=True, eq=False)
class _Held:
    """A question that could belong to several calls."""

    candidates: dict[Call, bool]  # and whether its tool was known to be quiet
    asker: asyncio.Future[Call | None]


class QuestionRouter:
    """The calls under way on one connection that have a client behind them."""

    def __init__(self, record: ServerRecord, *, mixed: bool, patience: Waits = USUAL_PATIENCE) -> None:
        self._record = record
        self._mixed = mixed  # one stream for all calls
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._inside: dict[Call, None] = {}  # in order of arrival
        self._turns: dict[Call, bool] = {}  # those inside that may ask, and whether their clients can be asked
        self._waiting: deque[tuple[Call, asyncio.Future[None]]] = deque()
        self._lingering: set[Call] = set()  # those inside that are over for us, but not yet for the server
        self._abandoned: dict[int, _Client] = {}  # calls that the server may go on with, though it heard of their end
        self._held: set[_Held] = set()
        self._doubted: set[Call] = set()  # those inside that may have asked a question that was not placed

    # --- calls

    def enter(self, call: Call) -> asyncio.Future[None] | None:
        """Let `call` in, or give it a number to wait for with `wait_for`. Ends with `leave` in both cases."""
        if call.back is None:
            return None
        if not self._mixed and not self._record.at_large:
            self._inside[call] = None
            return None
        if self._may_enter(call, first=not self._waiting):
            self._let_in(call)
            return None
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((call, turn))
        if not self._record.may_ask(name_of(call)):
            self._loop.call_later(self._patience.silent_s, self._let_pass, call, turn)
        return turn

    async def wait_for(self, turn: asyncio.Future[None], call: Call) -> None:
        """Wait for one's turn; the clock of the call stands still. Raises ConnectionLostError."""
        if call.clock is not None:
            call.clock.pause()
        try:
            async with asyncio.timeout(self._patience.turn_s):
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
        """`call` is over, or does not wait any longer."""
        if call.back is None:
            return
        if call in self._inside:
            del self._inside[call]
            if call in self._lingering:
                self._lingering.discard(call)
                self._abandon(call)
            self._place_held(call)
            if call.answered and call not in self._doubted:
                self._record.finished(name_of(call))
            self._doubted.discard(call)
        else:
            self._leave_queue(call)
        turn = self._turns.pop(call, None)
        if turn is not None or self._waiting:
            self._admit()

    def linger(self, call: Call) -> bool:
        """`call` ends without an answer. False: it may `leave` at once, because nothing depends on it."""
        if call not in self._inside:
            return False
        self._lingering.add(call)
        for question in self._held:
            if call in question.candidates:
                _refuse(question, _OVER)
        return True

    def answered_late(self, number: int) -> None:
        """The server has answered a call that was given up before, so it asks nothing more for it."""
        self._abandoned.pop(number, None)
        self._lingering = {call for call in self._lingering if call.number != number}

    def _abandon(self, call: Call) -> None:
        while len(self._abandoned) >= _MOST_HELD:
            del self._abandoned[next(iter(self._abandoned))]
        for client in _clients([call]):
            self._abandoned[call.number] = client
            self._loop.call_later(self._patience.abandoned_s, self._abandoned.pop, call.number, None)

    def close(self, reason: str) -> None:
        """The connection is over: nothing waits any longer."""
        waiting, self._waiting = self._waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(ConnectionLostError(reason))
        for question in self._held:
            if not question.asker.done():
                question.asker.set_result(None)

    def _may_enter(self, call: Call, *, first: bool) -> bool:
        if self._is_quiet(call):
            return True
        if not first:
            return False
        if not self._turns:
            return True
        if not can_be_asked(call):
            return not any(self._turns.values())
        return _one_client([*self._turns, call])

    def _let_in(self, call: Call) -> None:
        self._inside[call] = None
        name = name_of(call)
        if name in self._record.quiet:
            return
        self._turns[call] = can_be_asked(call)
        if not self._record.may_ask(name):
            self._loop.call_later(self._patience.silent_s, self._was_silent, call)

    def _let_pass(self, call: Call, turn: asyncio.Future[None]) -> None:
        """Most tools never ask: an unknown one does not wait for as long as a person thinks about an answer."""
        if not turn.done() and not self._record.may_ask(name_of(call)):
            self._leave_queue(call)
            self._inside[call] = None
            turn.set_result(None)

    def _leave_queue(self, call: Call) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not call)

    def _was_silent(self, call: Call) -> None:
        if call in self._turns and not self._record.may_ask(name_of(call)):
            del self._turns[call]
            self._admit()

    def _admit(self) -> None:
        kept: deque[tuple[Call, asyncio.Future[None]]] = deque()
        for call, turn in self._waiting:
            if turn.done():
                continue
            if self._may_enter(call, first=not kept):
                self._let_in(call)
                turn.set_result(None)
            else:
                kept.append((call, turn))
        self._waiting = kept

    # --- questions

    async def asker(self) -> Call | None:
        """The call that a question, which has just come, belongs to. None: no call is under way.

        Raises:
            UnroutableQuestionError: it could be several, to the end.
        """
        self._record.at_large = True  # matters only where calls have streams of their own
        if not self._inside:
            return None
        question = _Held({call: self._is_quiet(call) for call in self._inside}, self._loop.create_future())
        if self._lingering or self._others_abandoned():
            raise self._cannot_place(question, _OVER)
        if len(self._inside) > 1 and not any(map(can_be_asked, self._inside)):
            raise self._cannot_place(question, _UNABLE)
        meant = _only_client(question.candidates)
        if meant is None:
            return await self._hold(question)
        self._note(meant, question)
        return meant

    def _others_abandoned(self) -> bool:
        """Whether the question may be one of a call that another client gave up."""
        return bool(self._abandoned) and not _all_one([*_clients(self._inside), *self._abandoned.values()])

    async def _hold(self, question: _Held) -> Call | None:
        """Wait until the other candidates, which are calls of quiet tools, have been answered."""
        may_ask = [call for call, quiet in question.candidates.items() if not quiet]
        if len(self._held) >= _MOST_HELD or (may_ask and not _one_client(may_ask)):
            raise self._cannot_place(question, _SEVERAL)
        self._doubted.update(question.candidates)
        if not may_ask:
            self._suspect(question.candidates)
        self._held.add(question)
        try:
            async with asyncio.timeout(self._patience.held_s):
                return await question.asker
        except TimeoutError:
            self._suspect(question.candidates)
            raise UnroutableQuestionError(_SEVERAL) from None
        finally:
            self._held.discard(question)

    def _place_held(self, leaving: Call) -> None:
        """Place the questions that only one client can have asked once `leaving` is answered.

        Only a tool that is known to be quiet is trusted to leave no question behind: another one may have given up
        waiting for its answer.
        """
        for question in self._held:
            quiet = question.candidates.pop(leaving, None)
            if quiet is None or question.asker.done():
                continue
            meant = _only_client(question.candidates)
            if not quiet:
                _refuse(question, _OVER)
            elif meant is not None:
                self._note(meant, question)
                question.asker.set_result(meant)

    def _cannot_place(self, question: _Held, reason: str) -> UnroutableQuestionError:
        self._doubted.update(question.candidates)
        self._suspect(call for call, quiet in question.candidates.items() if not quiet)
        return UnroutableQuestionError(reason)

    def _suspect(self, calls: Iterable[Call]) -> None:
        """From now on calls of these tools take turns, and wait for those that are under way."""
        for call in calls:
            self._record.suspect(name_of(call))
            if call in self._inside:
                self._turns[call] = can_be_asked(call)

    def _note(self, asker: Call, question: _Held) -> None:
        """`asker` is asked. Of several calls of one client it is not known which one asks, and need not be."""
        if len(question.candidates) > 1:
            self._doubted.update(question.candidates)
            may_ask = [call for call, quiet in question.candidates.items() if not quiet]
            self._suspect(may_ask or question.candidates)
            return
        self._record.asked(name_of(asker))
        self._turns[asker] = can_be_asked(asker)  # from now on, if it ran freely so far

    def _is_quiet(self, call: Call) -> bool:
        return name_of(call) in self._record.quiet


def _refuse(question: _Held, reason: str) -> None:
    if not question.asker.done():
        question.asker.set_exception(UnroutableQuestionError(reason))


def _only_client(candidates: Iterable[Call]) -> Call | None:
    """A call of the only client that can be meant; the last one, of several. None: there are several clients."""
    calls = list(candidates)
    return calls[-1] if calls and _one_client(calls) else None


def name_of(call: Call) -> str:
    """What a call is known by: the tool's name, or the method where it is no tool."""
    name = call.params.get("name") if call.method == "tools/call" else None
    return name if type(name) is str else call.method


def can_be_asked(call: Call) -> bool:
    return call.request is not None and any(
        declares(call.request.client.capabilities, question) for question in QUESTION_CAPABILITIES
    )


def _one_client(calls: Iterable[Call]) -> bool:
    """Whether all are of one session of one caller. What a session declared is kept once, so that is its mark;
    modern requests have no session, and each brings its own."""
    return _all_one(_clients(calls))


def _clients(calls: Iterable[Call]) -> list[_Client]:
    return [(each.request.caller, each.request.client.capabilities) for each in calls if each.request is not None]


def _all_one(clients: Sequence[_Client]) -> bool:
    caller, declared = clients[0]
    return all(one == caller and capabilities is declared for one, capabilities in clients)
