"""Calls that share one stream: whose question is it? Where the wire does not tell, calls that may ask take turns.

On stdio, on SSE and on the standing stream of a legacy HTTP server a question does not name the call it belongs to.
It is never guessed. Instead it is arranged that only one call can be meant:

- A tool that was seen to ask runs alone among all calls that may ask. A tool that was never called yet is treated
  so, too, but neither waits nor makes others wait for long; one that answered without asking runs freely from then on.
- Clients that cannot be asked anything do not wait for each other: their questions have one answer, a refusal.
- A question that could belong to several calls all the same waits, and nobody is let in, until the others are done.
  If they all are calls of one client session, that client is asked at once. If nothing helps, the server gets an
  error, and the tools in question are known to ask from then on.
- A call that ended without the server's answer may still be asking over there. It lingers until the server has heard
  of its end, and a question that comes or waits meanwhile is refused: it could be from beyond the grave.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.catalog.model import Json
from pointsman.router.downstream.connection import Call, ConnectionLost

_SEVERAL = (
    "several calls are under way, and this transport does not tell which one asks; "
    "try again, because the calls that may be meant take turns from now on"
)
_OVER = "the call that may have asked this is over"
_UNABLE = "none of the clients whose calls are under way can be asked anything"
_CAPABILITIES = ("elicitation", "sampling", "roots")
_MOST_KNOWN = 10_000  # names; they come from the server's own list, so there are few
_MOST_HELD = 1_000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, handed in so that tests need not."""

    silent_s: float = 5.0  # for a tool that nobody knows yet to ask, or to wait for those that do
    held_s: float = 30.0  # for other calls to end, while a question could belong to several
    turn_s: float = 300.0  # for a turn


USUAL_PATIENCE = Patience()


class CannotPlace(Exception):
    """Nobody can be asked, because nobody knows which call asks. `str(error)` is the reason, for the server."""


class Habits:
    """What a server was seen to do, beyond the life of one connection."""

    __slots__ = ("asking", "at_large", "quiet")

    def __init__(self) -> None:
        self.asking: set[str] = set()
        self.quiet: set[str] = set()
        self.at_large = False  # it asks outside the streams of its calls, although there are such streams

    def asked(self, name: str) -> None:
        self.quiet.discard(name)
        self.asking.add(name)

    def finished(self, name: str) -> None:
        if name in self.quiet or name in self.asking:
            return
        if len(self.quiet) >= _MOST_KNOWN:
            self.quiet.clear()
        self.quiet.add(name)


class Crowd:
    """The calls under way on one connection that have a client behind them."""

    def __init__(self, habits: Habits, *, mixed: bool, patience: Patience = USUAL_PATIENCE) -> None:
        self._habits = habits
        self._mixed = mixed  # one stream for all calls
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._inside: dict[Call, None] = {}  # in order of arrival
        self._turns: dict[Call, bool] = {}  # those inside that may ask, and whether their clients can be asked
        self._waiting: deque[tuple[Call, asyncio.Future[None]]] = deque()
        self._lingering: set[Call] = set()  # those inside that are over for us, but not yet for the server
        self._held: set[asyncio.Future[Call | None]] = set()  # questions that could belong to several calls

    # --- calls

    def enter(self, call: Call) -> asyncio.Future[None] | None:
        """Let `call` in, or give it a number to wait for with `wait_for`. Ends with `leave` in both cases."""
        if call.back is None:
            return None
        if not self._mixed and not self._habits.at_large:
            self._inside[call] = None
            return None
        if self._may_enter(call, first=not self._waiting):
            self._let_in(call)
            return None
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((call, turn))
        if name_of(call) not in self._habits.asking:
            self._loop.call_later(self._patience.silent_s, self._let_pass, call, turn)
        return turn

    async def wait_for(self, turn: asyncio.Future[None], call: Call) -> None:
        """Wait for one's turn; the clock of the call stands still. Raises ConnectionLost."""
        if call.clock is not None:
            call.clock.pause()
        try:
            async with asyncio.timeout(self._patience.turn_s):
                await turn
        except TimeoutError:
            raise ConnectionLost(
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
            self._lingering.discard(call)
            if call.answered and not self._held:
                self._habits.finished(name_of(call))
        else:
            self._leave_queue(call)
        turn = self._turns.pop(call, None)
        if self._held:
            self._place_held()
        if turn is not None or self._waiting:
            self._admit()

    def linger(self, call: Call) -> bool:
        """`call` ends without an answer. False: it may `leave` at once, because nothing depends on it."""
        if call not in self._inside:
            return False
        self._lingering.add(call)
        for question in self._held:
            if not question.done():
                question.set_exception(CannotPlace(_OVER))
        return True

    def close(self, reason: str) -> None:
        """The connection is over: nobody waits any longer."""
        waiting, self._waiting = self._waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(ConnectionLost(reason))
        for question in self._held:
            if not question.done():
                question.set_result(None)

    def _may_enter(self, call: Call, *, first: bool) -> bool:
        if self._held:
            return False
        if name_of(call) in self._habits.quiet:
            return True
        if not first:
            return False
        return not self._turns if can_be_asked(call) else not any(self._turns.values())

    def _let_in(self, call: Call) -> None:
        self._inside[call] = None
        name = name_of(call)
        if name in self._habits.quiet:
            return
        self._turns[call] = can_be_asked(call)
        if name not in self._habits.asking:
            self._loop.call_later(self._patience.silent_s, self._was_silent, call)

    def _let_pass(self, call: Call, turn: asyncio.Future[None]) -> None:
        """Most tools never ask: an unknown one must not wait for as long as somebody thinks about an answer."""
        if not turn.done() and not self._held and name_of(call) not in self._habits.asking:
            self._leave_queue(call)
            self._inside[call] = None
            turn.set_result(None)

    def _leave_queue(self, call: Call) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not call)

    def _was_silent(self, call: Call) -> None:
        if call in self._turns and name_of(call) not in self._habits.asking:
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
            CannotPlace: it could be several, to the end.
        """
        self._habits.at_large = True  # matters only where calls have streams of their own
        if self._lingering:
            raise CannotPlace(_OVER)
        if len(self._inside) > 1 and not any(map(can_be_asked, self._inside)):
            raise CannotPlace(_UNABLE)
        meant = self._meant()
        if meant is None and self._inside:
            return await self._hold()
        self._note(meant)
        return meant

    async def _hold(self) -> Call | None:
        if len(self._held) >= _MOST_HELD:
            raise CannotPlace(_SEVERAL)
        for call in self._inside:
            self._habits.quiet.discard(name_of(call))
        question: asyncio.Future[Call | None] = self._loop.create_future()
        self._held.add(question)
        try:
            async with asyncio.timeout(self._patience.held_s):
                return await question
        except TimeoutError:
            for call in self._inside:
                self._habits.asked(name_of(call))
            raise CannotPlace(_SEVERAL) from None
        finally:
            self._held.discard(question)
            if not self._held:
                self._admit()

    def _place_held(self) -> None:
        meant = self._meant()
        if meant is None and self._inside:
            return
        self._note(meant)
        for question in self._held:
            if not question.done():
                question.set_result(meant)

    def _note(self, asker: Call | None) -> None:
        if asker is not None:
            self._habits.asked(name_of(asker))
            self._turns[asker] = can_be_asked(asker)  # from now on, if it ran freely so far

    def _meant(self) -> Call | None:
        """The only call that it can be, or any if they are all of one client."""
        calls = list(self._inside)
        return calls[-1] if calls and _one_client(calls) else None


def name_of(call: Call) -> str:
    """What a call is known by: the tool's name, or the method where it is no tool."""
    name = call.params.get("name") if call.method == "tools/call" else None
    return name if type(name) is str else call.method


def can_be_asked(call: Call) -> bool:
    return call.request is not None and any(declares(call.request.client.capabilities, it) for it in _CAPABILITIES)


def declares(capabilities: Json, name: str) -> bool:
    return type(capabilities.get(name)) is dict


def _one_client(calls: Iterable[Call]) -> bool:
    """Whether all are of one session of one caller. What a session declared is kept once, so that is its mark;
    modern requests have no session, and each brings its own."""
    requests = [call.request for call in calls if call.request is not None]
    first = requests[0]
    return all(
        request.caller == first.caller and request.client.capabilities is first.client.capabilities
        for request in requests
    )
