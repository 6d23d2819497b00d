"""Over all interleavings of calls and questions: a client is asked only what one of its own calls asks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.core.model import Json
from pointsman.router.downstream.connection import Call
from pointsman.router.downstream.talk.question_routing import Waits
from pointsman.router.downstream.talk.server_memory import ServerRecord
from tests.router.downstream.stdio_parts import Person
from tests.router.downstream.talk.test_question_routing import Wire, session, settled

T = TypeVar("T")
Kind = Literal["never", "always", "sometimes", "abandons"]
"""How a tool behaves. One that abandons answers its call without waiting for the answer to its question."""

CLIENTS = 3  # the first one cannot be asked anything
TOOLS = 3
KINDS: tuple[Kind, ...] = ("never", "always", "sometimes", "abandons")
MOVES = ("call",) * 4 + ("ask",) * 3 + ("answer",) * 3 + ("cancel", "hear", "reconnect")

kinds = st.lists(st.sampled_from(KINDS), min_size=TOOLS, max_size=TOOLS)
known = st.lists(st.booleans(), min_size=TOOLS, max_size=TOOLS)
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, CLIENTS * TOOLS - 1)), min_size=20, max_size=60)
Moves = list[tuple[str, int]]


@dataclass(eq=False)
class Running:
    """A call that the server works on."""

    number: int
    client: int
    kind: Kind
    asked: bool = False
    open_questions: set[str] = field(default_factory=set)

    @property
    def may_ask(self) -> bool:
        return self.kind != "never" and not self.open_questions

    @property
    def may_answer(self) -> bool:
        if self.kind == "abandons":
            return self.asked
        return not self.open_questions and (self.asked or self.kind != "always")


class Server:
    """The server's end: it knows which call each question belongs to."""

    def __init__(self, behaviour: list[Kind], record: ServerRecord, waits: Waits, *, heeds: bool = True) -> None:
        self.behaviour = behaviour
        self.heeds = heeds  # cancellations; the protocol lets a server go on
        self.record = record
        self.waits = waits
        self.people = [Person() for _ in range(CLIENTS)]
        self.sessions = [session(str(client), able=client > 0) for client in range(CLIENTS)]
        self.owner: dict[str, int] = {}  # question -> client
        self._count = 0
        self._connect()

    def _connect(self) -> None:
        self.wire = Wire(self.record, self.waits)
        self.running: dict[int, Running] = {}
        self.calls: dict[int, asyncio.Task[Json]] = {}
        self._read = 0

    async def call(self, choice: int) -> None:
        client, tool = divmod(choice, TOOLS)
        self._count += 1
        arguments = {"call": self._count, "client": client, "tool": tool}
        params: Json = {"name": f"tool{tool}", "arguments": arguments}
        await self.wire.start(Call("tools/call", params, self.sessions[client], self.people[client]))
        self.calls[self._count] = self.wire.tasks[-1]
        self._look()

    def _look(self) -> None:
        """Read what was sent: calls that have come in, and answers to our questions."""
        for message in self.wire.sent[self._read :]:
            if message.get("method") == "tools/call":
                given = message["params"]["arguments"]
                running = Running(message["id"], given["client"], self.behaviour[given["tool"]])
                self.running[given["call"]] = running
            elif "method" not in message:
                for running in self.running.values():
                    running.open_questions.discard(message["id"])
        self._read = len(self.wire.sent)

    async def ask(self, choice: int) -> None:
        running = _choose([each for each in self.running.values() if each.may_ask], choice)
        if running is None:
            return
        question = f"q{len(self.owner)}"
        self.owner[question] = running.client
        running.asked = True
        running.open_questions.add(question)
        await self.wire.asks(question)
        self._look()

    async def answer(self, choice: int) -> None:
        running = _choose([each for each in self.running.values() if each.may_answer], choice)
        if running is None:
            return
        self.running = {key: each for key, each in self.running.items() if each is not running}
        await self.wire.says(id=running.number, result={"content": []})
        self._look()

    async def cancel(self, choice: int) -> None:
        """A client gives up; the server goes on until it has heard of that."""
        task = _choose([task for task in self.calls.values() if not task.done()], choice)
        if task is not None:
            task.cancel()
            await settled()
            self._look()

    async def hear(self, _: int) -> None:
        """The server reads its cancellations, then answers the pings that were sent after them."""
        cancelled = {m["params"]["requestId"] for m in self.wire.sent if m.get("method") == "notifications/cancelled"}
        if self.heeds:
            self.running = {key: each for key, each in self.running.items() if each.number not in cancelled}
        for ping in self.wire.pinged():
            await self.wire.says(id=ping, result={})
        self._look()

    async def reconnect(self, _: int = 0) -> None:
        self.wire.mux.lost("it was restarted")
        await asyncio.gather(*self.wire.tasks, return_exceptions=True)
        self._connect()

    async def play(self, moves: Moves) -> None:
        for name, choice in moves:
            await getattr(self, name)(choice)
            await settled()  # for calls that need not wait any longer
            self._look()

    def asked(self) -> list[tuple[int, str]]:
        return [(client, params["message"]) for client, one in enumerate(self.people) for _, params in one.asked]


def _choose(candidates: list[T], choice: int) -> T | None:
    return candidates[choice % len(candidates)] if candidates else None


def remembered(behaviour: list[Kind], known: list[bool]) -> ServerRecord:
    """What an earlier run has learned of the tools."""
    record = ServerRecord()
    for tool, kind in enumerate(behaviour):
        if known[tool] and kind in ("always", "abandons"):
            record.asked(f"tool{tool}")
        elif known[tool]:
            record.finished(f"tool{tool}")
    return record


@pytest.mark.no_cover
@settings(max_examples=300, deadline=None)
@given(kinds, known, moves, st.sampled_from([0.0, 60.0]), st.booleans())
def test_no_question_reaches_a_client_whose_calls_did_not_ask_it(
    behaviour: list[Kind], known: list[bool], moves: Moves, silent_s: float, heeds: bool
) -> None:
    async def play() -> Server:
        waits = Waits(silent_s=silent_s, held_s=60, turn_s=60, abandoned_s=60)
        server = Server(behaviour, remembered(behaviour, known), waits, heeds=heeds)
        await server.play(moves)
        await server.reconnect()
        return server

    server = asyncio.run(play())
    for client, question in server.asked():
        assert server.owner[question] == client


@settings(max_examples=100, deadline=None)
@given(kinds, known, moves)
def test_a_tool_that_was_never_called_does_not_wait_whatever_goes_on(
    behaviour: list[Kind], known: list[bool], moves: Moves
) -> None:
    """However many questions are open, and whatever waits: after `silent_s` its call is sent."""

    async def sent() -> bool:
        server = Server(behaviour, remembered(behaviour, known), Waits(silent_s=0, held_s=60, turn_s=60))
        await server.play(moves)
        await server.wire.start(Call("tools/call", {"name": "new"}, server.sessions[1], server.people[1]))
        await settled()
        found = "new" in server.wire.running()
        await server.reconnect()
        return found

    assert asyncio.run(sent())
