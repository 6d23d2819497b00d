"""How long work shares the process with calls: in turns on the event loop, and in threads that give way to it soon."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakKeyDictionary

GIVE_WAY_S = 0.0005  # Python's own is 0.005, and a call waits for the interpreter lock several times

SELDOM = 10  # collections of a younger generation of garbage before one of the next, while a thread computes

PAUSE_S = 0.001  # between two steps that hold the event loop for several milliseconds

_Turns = deque[asyncio.Future[None]]
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


async def own_round() -> None:
    """Wait for a round of the event loop in which no other caller of this function goes on.

    Await it between steps of some milliseconds: whatever else is ready runs in between.
    """
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault(loop, deque())
    turn: asyncio.Future[None] = loop.create_future()
    turns.append(turn)
    if len(turns) == 1:
        loop.call_soon(_next_turn, loop, turns)
    await turn


def _next_turn(loop: asyncio.AbstractEventLoop, turns: _Turns) -> None:
    turn = turns.popleft()
    if not turn.done():  # its task may have been cancelled meanwhile
        turn.set_result(None)
    if turns:
        loop.call_soon(_next_turn, loop, turns)


async def long_turn() -> None:
    """As `own_round`, before a step of several milliseconds: `PAUSE_S` lies between two of them.

    A small call needs some rounds of the event loop. In the pause it gets them all; otherwise it would wait for a step
    in each of them.
    """
    loop = asyncio.get_running_loop()
    turns = _long_turns.setdefault(loop, _LongTurns())
    turn: asyncio.Future[None] = loop.create_future()
    turns.waiting.append(turn)
    if not turns.running:
        turns.running = True
        loop.call_soon(turns.grant, loop)
    await turn


class _LongTurns:
    def __init__(self) -> None:
        self.waiting: _Turns = deque()
        self.running = False  # a step, or the pause after it

    def grant(self, loop: asyncio.AbstractEventLoop) -> None:
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():  # its task may have been cancelled meanwhile
                turn.set_result(None)
                loop.call_soon(self._pause, loop)  # which comes after the step
                return
        self.running = False

    def _pause(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(PAUSE_S, self.grant, loop)


_long_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _LongTurns] = WeakKeyDictionary()


@contextmanager
def giving_way() -> Iterator[None]:
    """Compute in a thread that leaves the interpreter lock to others after `GIVE_WAY_S`; the last one restores it.

    Meanwhile old garbage is collected seldom: what such work makes stays, and a collection of it holds the lock.
    """
    global _computing, _usual
    with _lock:
        if _computing == 0:
            _usual = _Usual(sys.getswitchinterval(), gc.get_threshold())
            sys.setswitchinterval(min(GIVE_WAY_S, _usual.switch_s))
            gc.set_threshold(*_usual.seldom())
        _computing += 1
    try:
        yield
    finally:
        with _lock:
            _computing -= 1
            if _computing == 0:
                sys.setswitchinterval(_usual.switch_s)
                if gc.get_threshold() == _usual.seldom():  # otherwise they were set anew meanwhile
                    gc.set_threshold(*_usual.thresholds)


class _Usual(NamedTuple):
    switch_s: float
    thresholds: tuple[int, int, int]

    def seldom(self) -> tuple[int, int, int]:
        young, middle, old = self.thresholds
        return young, max(middle, SELDOM), max(old, SELDOM)


_lock = threading.Lock()
_computing = 0
_usual = _Usual(0.0, (0, 0, 0))
