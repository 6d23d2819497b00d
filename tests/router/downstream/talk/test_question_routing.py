"""Whose question is it? Calls on one stream take turns where that could be asked, and a question is never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.model import Caller, Json
from pointsman.core.seams import Client, FrontRequest
from pointsman.router.downstream.connection import Call, CallNotSentError, ConnectionLostError, Introduction
from pointsman.router.downstream.talk.multiplexer import Multiplexer
from pointsman.router.downstream.talk.question_routing import QuestionRouter, Waits
from pointsman.router.downstream.talk.server_memory import ServerRecord
from tests.router.downstream.http_parts import until
from tests.router.downstream.stdio_parts import Person, stdio

PATIENT = Waits(silent_s=60, held_s=60, turn_s=60)
PATIENCE_S = 30.0


def session(token: str, *, able: bool = True) -> FrontRequest:
    """What all requests of one client session share."""
    client = Client(token, "legacy", "any", {"elicitation": {}} if able else {}, None, None)
    return FrontRequest("r1", "tools/call", {}, Caller(token, None), client)


def call(tool: str, request: FrontRequest, person: Person | None = None) -> Call:
    return Call("tools/call", {"name": tool, "arguments": {}}, request, person or Person())


class Wire:
    """A legacy server's end of the stream: what reached it, and what it says."""

    def __init__(
        self, record: ServerRecord | None = None, waits: Waits = PATIENT, *, shared_stream: bool = True
    ) -> None:
        self.sent: list[Json] = []
        router = QuestionRouter(record or ServerRecord(), shared_stream=shared_stream, waits=waits)
        self.mux = Multiplexer(self._take, Limits(), lambda method, params: None, router)
        self.mux.introduced(Introduction("legacy", "2025-11-25", {}, {}))
        self.tasks: list[asyncio.Task[Json]] = []

    def _take(self, data: bytes, number: int | None) -> None:
        self.sent.append(wire.decode(data))

    async def start(self, *calls: Call) -> None:
        """Hand the calls in; those that need not wait have been sent when this returns."""
        self.tasks += [asyncio.create_task(self.mux.request(each)) for each in calls]
        await settled()

    def running(self) -> list[str]:
        """Names of the tools whose calls reached the server, in order."""
        return [message["params"]["name"] for message in self.sent if message.get("method") == "tools/call"]

    def number(self, position: int) -> int:
        calls = [message["id"] for message in self.sent if message.get("method") == "tools/call"]
        return int(calls[position])

    async def says(self, **message: Any) -> None:
        self.mux.receive(wire.encode({"jsonrpc": "2.0", **message}))
        await settled()

    async def answers(self, position: int) -> None:
        await self.says(id=self.number(position), result={"content": []})

    async def asks(self, question: str) -> None:
        await self.says(id=question, method="elicitation/create", params={"message": question})

    async def reply_to(self, question: str) -> Json:
        await until(lambda: any(message.get("id") == question for message in self.sent))
        return next(message for message in self.sent if message.get("id") == question)

    def pinged(self) -> list[int]:
        return [message["id"] for message in self.sent if message.get("method") == "ping"]

    async def done(self) -> None:
        """Answer whatever runs, as long as something does."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(task.done() for task in self.tasks):
                for position in range(len(self.running())):
                    await self.answers(position)
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_of_a_tool_that_nobody_knows_take_turns_until_one_has_answered() -> None:
    wire = Wire()
    await wire.start(*(call("find", session(who)) for who in "abc"))
    assert wire.running() == ["find"]
    await wire.answers(0)
    assert wire.running() == ["find"] * 3
    await wire.done()


async def test_a_tool_that_was_seen_to_ask_runs_alone_and_each_client_gets_its_own_question() -> None:
    wire, people = Wire(), [Person(), Person(), Person()]
    await wire.start(*(call("greet", session(str(n)), person) for n, person in enumerate(people)))
    for turn, person in enumerate(people):
        assert wire.running() == ["greet"] * (turn + 1)
        await wire.asks(f"q{turn}")
        assert (await wire.reply_to(f"q{turn}"))["result"] == {"action": "accept"}
        assert [params["message"] for _, params in person.asked] == [f"q{turn}"]
        await wire.answers(turn)
    await wire.done()


async def test_quiet_tools_run_beside_one_that_asks() -> None:
    record = ServerRecord()
    record.finished("find")
    wire = Wire(record)
    await wire.start(call("greet", session("a")), call("greet", session("b")), call("find", session("c")))
    assert wire.running() == ["greet", "find"]
    await wire.done()


async def test_a_tool_that_is_silent_for_long_does_not_hold_up_the_others() -> None:
    wire = Wire(waits=Waits(silent_s=0.01, held_s=60, turn_s=60))
    await wire.start(call("crawl", session("a")), call("find", session("b")))
    await until(lambda: wire.running() == ["crawl", "find"])
    await wire.done()


async def test_a_tool_that_nobody_knows_does_not_wait_for_long_while_somebody_thinks_about_an_answer() -> None:
    record = ServerRecord()
    record.asked("greet")
    wire = Wire(record, Waits(silent_s=0.01, held_s=60, turn_s=60))
    await wire.start(*(call(tool, session(tool)) for tool in ("greet", "greet", "find")))
    await until(lambda: wire.running() == ["greet", "find"])
    await wire.answers(1)
    assert wire.running() == ["greet", "find"]  # the second one goes on waiting for its turn
    await wire.answers(0)
    assert wire.running() == ["greet", "find", "greet"]
    await wire.answers(2)
    await wire.start(call("greet", session("greet")))
    assert wire.running()[3:] == ["greet"]  # nobody is in the queue any more
    await wire.done()


async def test_clients_that_cannot_be_asked_do_not_wait_for_each_other() -> None:
    wire = Wire()
    await wire.start(*(call("greet", session(who, able=False)) for who in "abc"))
    assert wire.running() == ["greet"] * 3
    await wire.asks("q")
    assert "none of the clients" in (await wire.reply_to("q"))["error"]["message"]
    await wire.done()


async def test_a_client_that_cannot_be_asked_is_kept_apart_from_one_that_can() -> None:
    """Or the question of its call would be put to the other one."""
    wire, able = Wire(), Person()
    await wire.start(call("greet", session("a"), able), call("greet", session("b", able=False)))
    assert wire.running() == ["greet"]
    await wire.asks("q")
    await wire.answers(0)
    assert wire.running() == ["greet"] * 2
    await wire.done()
    assert len(able.asked) == 1


async def test_a_question_that_could_be_of_several_waits_until_the_others_have_answered() -> None:
    """The tools were quiet so far, so they run side by side; then one asks for the first time."""
    record, first, second = ServerRecord(), Person(), Person()
    record.finished("delete")
    wire = Wire(record)
    await wire.start(call("delete", session("a"), first), call("delete", session("b"), second))
    await wire.asks("sure?")
    await wire.start(call("delete", session("c")))
    assert wire.running() == ["delete"] * 2  # nobody is let in meanwhile
    assert not first.asked
    assert not second.asked
    await wire.answers(0)
    assert (await wire.reply_to("sure?"))["result"] == {"action": "accept"}
    assert not first.asked
    assert len(second.asked) == 1
    assert wire.running() == ["delete"] * 2  # the third one waits for its turn: now it is known that this tool asks
    await wire.done()


async def test_a_question_that_stays_unclear_is_refused_and_the_tools_take_turns_from_then_on() -> None:
    record = ServerRecord()
    record.finished("delete")
    wire = Wire(record, Waits(silent_s=60, held_s=0.01, turn_s=60))
    await wire.start(call("delete", session("a")), call("delete", session("b")))
    await wire.asks("sure?")
    assert "try again" in (await wire.reply_to("sure?"))["error"]["message"]
    await wire.answers(0)
    await wire.answers(1)
    await wire.start(call("delete", session("a")), call("delete", session("b")))
    assert wire.running() == ["delete"] * 3
    await wire.done()


async def test_calls_of_one_session_need_not_be_told_apart() -> None:
    record, person, one = ServerRecord(), Person(), session("a")
    record.finished("delete")
    wire = Wire(record)
    await wire.start(call("delete", one, person), call("delete", one, person))
    await wire.asks("sure?")
    assert (await wire.reply_to("sure?"))["result"] == {"action": "accept"}
    await wire.done()


async def test_a_question_of_a_call_that_was_given_up_is_not_put_to_the_next_client() -> None:
    """The server had not heard of the end when it asked."""
    wire, gone, next_one = Wire(), Person(), Person()
    await wire.start(call("greet", session("a"), gone), call("greet", session("b"), next_one))
    wire.tasks[0].cancel()
    await settled()
    assert wire.running() == ["greet"]
    await wire.asks("from beyond")
    assert "is over" in (await wire.reply_to("from beyond"))["error"]["message"]
    await wire.says(id=wire.pinged()[0], result={})
    assert wire.running() == ["greet"] * 2
    await wire.asks("still from beyond")
    assert "is over" in (await wire.reply_to("still from beyond"))["error"]["message"]
    await wire.says(id=wire.number(0), error={"code": 0, "message": "Request cancelled"})
    await wire.asks("mine")
    assert (await wire.reply_to("mine"))["result"] == {"action": "accept"}
    assert [params["message"] for _, params in next_one.asked] == ["mine"]
    assert not gone.asked
    await wire.done()


async def test_an_answer_to_a_call_that_was_given_up_ends_the_doubt_at_once() -> None:
    """It may come before the server answers the ping; then nothing is refused."""
    wire, next_one = Wire(), Person()
    await wire.start(call("greet", session("a")), call("greet", session("b"), next_one))
    wire.tasks[0].cancel()
    await settled()
    await wire.says(id=wire.number(0), error={"code": 0, "message": "Request cancelled"})
    await wire.says(id=wire.pinged()[0], result={})
    await wire.asks("mine")
    assert (await wire.reply_to("mine"))["result"] == {"action": "accept"}
    await wire.done()


async def test_a_server_that_answers_nothing_is_doubted_for_a_while_only() -> None:
    waits = Waits(silent_s=60, held_s=60, turn_s=60, abandoned_s=0.01)
    wire, next_one = Wire(waits=waits), Person()
    await wire.start(call("greet", session("a")), call("greet", session("b"), next_one))
    wire.tasks[0].cancel()
    await settled()
    await wire.says(id=wire.pinged()[0], result={})
    await asyncio.sleep(0.05)
    await wire.asks("mine")
    assert (await wire.reply_to("mine"))["result"] == {"action": "accept"}
    await wire.done()


async def test_what_one_client_gave_up_does_not_keep_it_from_being_asked() -> None:
    wire, person, one = Wire(), Person(), session("a")
    await wire.start(call("greet", one, person))
    wire.tasks[0].cancel()
    await settled()
    await wire.says(id=wire.pinged()[0], result={})
    await wire.start(call("greet", one, person))
    await wire.asks("again")
    assert (await wire.reply_to("again"))["result"] == {"action": "accept"}
    await wire.done()


async def test_a_waiting_question_is_refused_when_one_that_may_have_asked_it_is_given_up() -> None:
    record, other = ServerRecord(), Person()
    record.finished("delete")
    wire = Wire(record)
    await wire.start(call("delete", session("a")), call("delete", session("b"), other))
    await wire.asks("whose?")
    wire.tasks[0].cancel()
    assert "is over" in (await wire.reply_to("whose?"))["error"]["message"]
    assert not other.asked
    await wire.done()


async def test_who_gives_up_waiting_leaves_the_queue() -> None:
    wire = Wire()
    await wire.start(*(call("greet", session(who)) for who in "abc"))
    await wire.asks("q")
    wire.tasks[1].cancel()
    await settled()
    await wire.answers(0)
    assert wire.running() == ["greet"] * 2
    assert not wire.pinged()  # the server never heard of the one that left
    await wire.done()


async def test_when_the_connection_ends_nobody_waits_any_longer() -> None:
    wire = Wire()
    await wire.start(*(call("greet", session(who)) for who in "abc"))
    wire.mux.lost("it died")
    await wire.start(call("greet", session("d")))
    outcomes = await asyncio.gather(*wire.tasks, return_exceptions=True)
    for ended in outcomes:
        assert isinstance(ended, ConnectionLostError)
        assert str(ended) == "it died"
    assert wire.running() == ["greet"]
    assert [isinstance(ended, CallNotSentError) for ended in outcomes] == [False, True, True, True]


async def test_a_turn_that_never_comes_ends_with_the_reason_and_the_remedy() -> None:
    wire = Wire(waits=Waits(silent_s=60, held_s=60, turn_s=0.01))
    await wire.start(call("greet", session("a")), call("greet", session("b")))
    with pytest.raises(ConnectionLostError, match="isolation: per-caller"):
        await wire.tasks[1]
    await wire.done()


async def test_what_is_known_of_a_server_outlives_its_connection() -> None:
    record = ServerRecord()
    wire = Wire(record)
    await wire.start(call("greet", session("a")))
    await wire.asks("q")
    await wire.done()
    again = Wire(record, Waits(silent_s=0, held_s=60, turn_s=60))
    await again.start(call("greet", session("a")), call("greet", session("b")))
    await asyncio.sleep(0.01)
    assert again.running() == ["greet"]
    await again.done()


async def test_thirty_questions_of_thirty_clients_over_one_child_each_reach_their_own() -> None:
    async def ask(number: int) -> Json:
        async def answer(method: str, params: Json) -> Json:
            await asyncio.sleep(0)
            return {"action": "accept", "content": {"n": number}}

        front = session(f"t{number}")
        params: Json = {"name": "ask", "arguments": {"method": "elicitation/create"}}
        result = await connection.request(Call("tools/call", params, front, Person(answer)))
        said: Json = result["structuredContent"]["answer"]["result"]["content"]
        return said

    async with asyncio.timeout(PATIENCE_S), stdio() as connection:
        asking: list[Coroutine[Any, Any, Json]] = [ask(number) for number in range(30)]
        assert await asyncio.gather(*asking) == [{"n": number} for number in range(30)]
