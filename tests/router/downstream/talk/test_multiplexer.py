"""The multiplexer alone, over a stream that is a list: what it sends, and what comes of what it hears."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.lines import id_of_undecoded
from pointsman.core.model import Json
from pointsman.core.seams import CannotAskError, ClientGoneError, Era, ProtocolError
from pointsman.router.downstream.connection import BudgetExceededError, Call, ConnectionLostError, Introduction
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES, decode_in_pieces, decode_off_loop
from pointsman.router.downstream.talk.multiplexer import Multiplexer
from pointsman.router.downstream.talk.server_messages import UnsolicitedMessages
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED, SUBSCRIPTION_ID
from tests.router.downstream.stdio_parts import Heard, Person, stdio, tool_call


class Stream:
    """Both ends of the wire in one test."""

    def __init__(self, limits: Limits | None = None, era: Era = "legacy") -> None:
        self.sent: list[Json] = []
        self.heard: Heard = []
        self.mux = Multiplexer(
            lambda data, number: self.sent.append(wire.decode(data)),
            limits or Limits(),
            lambda method, params: self.heard.append((method, params)),
        )
        self.mux.introduced(Introduction(era, "2025-11-25", {}, {}))

    def server_says(self, **message: Any) -> None:
        self.mux.receive(wire.encode({"jsonrpc": "2.0", **message}))

    async def start(self, call: Call) -> asyncio.Task[Json]:
        before = len(self.sent)
        task = asyncio.create_task(self.mux.request(call))
        while len(self.sent) == before:
            await asyncio.sleep(0)
        return task

    async def answer_to(self, question: str, method: str = "elicitation/create") -> Json:
        """Put a question to the gateway and wait for the answer that goes back."""
        self.server_says(id=question, method=method, params={"message": "well?"})
        async with asyncio.timeout(30):
            while True:
                for message in self.sent:
                    if message.get("id") == question:
                        return message
                await asyncio.sleep(0)

    def numbers(self) -> list[int]:
        return [message["id"] for message in self.sent if "method" in message and "id" in message]

    async def finish(self) -> None:
        for number in self.numbers():
            self.server_says(id=number, result={})
        await asyncio.sleep(0)


async def test_ids_are_our_own_and_never_used_twice() -> None:
    stream = Stream()
    tasks = [await stream.start(tool_call("echo")) for _ in range(5)]
    await stream.finish()
    await asyncio.gather(*tasks)
    tasks = [await stream.start(tool_call("echo")) for _ in range(5)]
    assert len(set(stream.numbers())) == 10
    await stream.finish()
    await asyncio.gather(*tasks)


async def test_progress_comes_back_under_the_clients_own_token() -> None:
    stream, first, second = Stream(), Person(), Person()
    tasks = [
        await stream.start(tool_call("a", person=first, progress_token="same")),
        await stream.start(tool_call("b", person=second, progress_token="same")),
    ]
    token = stream.sent[1]["params"]["_meta"]["progressToken"]
    assert token != "same"
    stream.server_says(method="notifications/progress", params={"progressToken": token, "progress": 0.5})
    assert first.told == []
    assert second.told == [("notifications/progress", {"progressToken": "same", "progress": 0.5})]
    await stream.finish()
    await asyncio.gather(*tasks)


async def test_progress_for_nobody_is_dropped_and_counted() -> None:
    stream, person = Stream(), Person()
    task = await stream.start(tool_call("a", person=person))
    tokens: list[object] = [stream.numbers()[0], 999, "1", None, [], True]
    for token in tokens:
        stream.server_says(method="notifications/progress", params={"progressToken": token})
    stream.server_says(method="notifications/progress", params="nonsense")
    assert person.told == []
    assert stream.mux.unsolicited.messages == 6
    await stream.finish()
    await task


@pytest.mark.parametrize(
    ("era", "level", "told"),
    [
        ("legacy", None, ["info", "error"]),
        ("legacy", "debug", ["debug", "info", "error"]),
        ("legacy", "warning", ["error"]),
        ("modern", None, []),
        ("modern", "error", ["error"]),
    ],
)
async def test_log_messages_respect_the_clients_level(era: Era, level: str | None, told: list[str]) -> None:
    stream, person = Stream(), Person()
    task = await stream.start(tool_call("log", person=person, era=era, log_level=level))
    for said in ("debug", "info", "error", "shouting", None):
        stream.server_says(method="notifications/message", params={"level": said, "data": "x"})
    assert [params["level"] for _, params in person.told] == told
    await stream.finish()
    await task


async def test_with_two_clients_under_way_a_log_message_reaches_neither() -> None:
    stream, people = Stream(), [Person(), Person()]
    tasks = [await stream.start(tool_call("log", person=person, log_level="debug")) for person in people]
    stream.server_says(method="notifications/message", params={"level": "error", "data": "whose?"})
    assert [person.told for person in people] == [[], []]
    await stream.finish()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
async def test_a_question_goes_to_the_client_of_the_only_call(method: str) -> None:
    person = Person()
    async with stdio() as connection:
        result = await connection.request(tool_call("ask", {"method": method}, person=person))
    assert person.asked == [(method, {"message": "well?"})]
    assert result["structuredContent"]["answer"]["result"] == {"action": "accept"}


async def test_our_own_lists_under_way_do_not_make_a_question_ambiguous() -> None:
    stream, person = Stream(), Person()
    tasks = [await stream.start(tool_call("a", person=person)), await stream.start(Call("tools/list", {}))]
    assert (await stream.answer_to("q"))["result"] == {"action": "accept"}
    await stream.finish()
    await asyncio.gather(*tasks)


async def test_what_was_done_out_of_band_is_told_to_the_client_that_was_asked_and_to_nobody_else() -> None:
    stream, asked, other = Stream(), Person(), Person()
    done = {"elicitationId": "e1"}
    first = await stream.start(tool_call("a", person=asked))
    stream.server_says(id="q", method="elicitation/create", params={"mode": "url", "elicitationId": "e1"})
    await asked.was_asked.wait()
    second = await stream.start(tool_call("b", person=other))
    stream.server_says(method="notifications/elicitation/complete", params=done)
    assert asked.told == [("notifications/elicitation/complete", done)]
    stream.server_says(id=stream.numbers()[0], result={})
    await first
    stream.server_says(method="notifications/elicitation/complete", params=done)
    assert other.told == []
    await stream.finish()
    await second


@pytest.mark.parametrize("elicitation_id", [[], {}, None, 7])
async def test_a_completed_elicitation_with_a_malformed_id_is_dropped(elicitation_id: object) -> None:
    stream, person = Stream(), Person()
    task = await stream.start(tool_call("a", person=person))
    stream.server_says(id="q", method="elicitation/create", params={"mode": "url", "elicitationId": "e1"})
    await person.was_asked.wait()
    stream.server_says(method="notifications/elicitation/complete", params={"elicitationId": elicitation_id})
    assert person.told == []
    await stream.finish()
    await task


async def test_a_question_outside_of_any_call_is_refused() -> None:
    assert "no call" in (await Stream().answer_to("q"))["error"]["message"]


async def test_a_modern_server_cannot_ask() -> None:
    stream, person = Stream(era="modern"), Person()
    task = await stream.start(tool_call("a", person=person))
    assert "input_required" in (await stream.answer_to("q"))["error"]["message"]
    assert person.asked == []
    await stream.finish()
    await task


async def test_a_ping_is_answered_at_once_and_other_requests_are_unknown() -> None:
    stream = Stream()
    assert (await stream.answer_to("p", "ping"))["result"] == {}
    assert (await stream.answer_to("x", "tools/call"))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (CannotAskError("The client has no elicitation"), -32601, "no elicitation"),
        (ClientGoneError(), -32800, "left"),
        (ProtocolError(-32602, "not this", {"x": 1}), -32602, "not this"),
    ],
)
async def test_a_client_that_cannot_answer_becomes_an_error_for_the_server(
    failure: Exception, code: int, words: str
) -> None:
    async def fail(method: str, params: Json) -> Json:
        raise failure

    stream = Stream()
    task = await stream.start(tool_call("a", person=Person(fail)))
    error = (await stream.answer_to("q"))["error"]
    assert error["code"] == code
    assert words in error["message"]
    await stream.finish()
    await task


async def test_a_broken_back_channel_costs_one_question(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(method: str, params: Json) -> Json:
        raise LookupError("a mistake of ours")

    stream, reported = Stream(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    task = await stream.start(tool_call("a", person=Person(fail)))
    error = (await stream.answer_to("q"))["error"]
    assert error == {"code": -32603, "message": "The question could not be passed on"}
    assert isinstance(reported[0]["exception"], LookupError)
    await stream.finish()
    await task


async def never(method: str, params: Json) -> Json:
    await asyncio.get_running_loop().create_future()
    return {}


@pytest.mark.parametrize("tool", ["ask_and_withdraw", "ask_and_leave"])
async def test_a_question_ends_when_the_server_withdraws_it_or_its_call_is_over(tool: str) -> None:
    person = Person(never)
    async with stdio() as connection:
        async with asyncio.timeout(30):
            await connection.request(tool_call(tool, person=person))
            while not any("error" in message for message in await seen_by(connection.request)):
                await asyncio.sleep(0.01)


async def seen_by(request: Any) -> list[Json]:
    found: list[Json] = (await request(tool_call("seen")))["structuredContent"]["seen"]
    return found


async def test_questions_count_against_the_budget_of_their_call() -> None:
    stream = Stream(Limits(messages=3))
    task = await stream.start(tool_call("a", person=Person(never)))
    for number in range(4):
        stream.server_says(id=f"q{number}", method="elicitation/create")
    with pytest.raises(BudgetExceededError, match="more than 3 messages"):
        await task
    assert {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}} in stream.sent


async def test_the_bytes_of_messages_count_too() -> None:
    stream = Stream(Limits(result_bytes=1000))
    task = await stream.start(tool_call("a", person=Person()))
    for _ in range(3):
        stream.server_says(method="notifications/message", params={"level": "debug", "data": "x" * 400})
    with pytest.raises(BudgetExceededError, match="1000 bytes"):
        await task


async def test_the_end_of_the_stream_fails_everything_with_the_first_reason() -> None:
    stream, person = Stream(), Person(never)
    tasks = [await stream.start(tool_call("a", person=person)), await stream.start(Call("tools/list", {}))]
    stream.server_says(id="q", method="roots/list")
    await person.was_asked.wait()
    ended = asyncio.create_task(stream.mux.ended())
    stream.mux.lost("it fell over")
    stream.mux.lost("something else")
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, ConnectionLostError)
        assert str(outcome) == "it fell over"
    assert await ended == await stream.mux.ended() == "it fell over"
    sent = len(stream.sent)
    stream.server_says(id="p", method="ping")
    stream.server_says(method="notifications/tools/list_changed")
    assert len(stream.sent) == sent
    assert stream.heard == []


async def test_a_cancelled_waiter_does_not_cancel_the_end_for_others() -> None:
    stream = Stream()
    waiters = [asyncio.create_task(stream.mux.ended()) for _ in range(2)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    await asyncio.sleep(0)
    stream.mux.lost("over")
    assert await waiters[1] == "over"


async def test_an_answer_and_a_cancellation_at_the_same_moment_tell_the_server_nothing() -> None:
    stream = Stream()
    task = await stream.start(tool_call("a"))
    stream.server_says(id=1, error={"code": 1, "message": "no"})
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(stream.sent) == 1


@pytest.mark.parametrize(
    ("head", "tail", "number"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{', b"", 7),
        (b'{ "id" : 7 , "jsonrpc"', b"", 7),
        (b'{"result":{"id":5,', b'"},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":{"id":5,', b'"},"id":7,"jsonrpc":"2.0"}\r', 7),
        (b'{"result":{"id":5,', b'{"x":1,"id":7}}', None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":7,', b"", None),
        (b"hello", b"world", None),
    ],
)
def test_the_id_of_a_lost_answer_is_salvaged(head: bytes, tail: bytes, number: int | None) -> None:
    assert id_of_undecoded(head, tail) == number


def test_a_flood_is_slowed_down_and_given_up_when_it_does_not_end() -> None:
    now = 100.0
    unsolicited = UnsolicitedMessages(Limits(messages=1), lambda: now)
    for _ in range(10):
        unsolicited.charge(1)
    assert unsolicited.pause_s() == 0
    unsolicited.charge(1)
    assert unsolicited.pause_s() == 1.0
    now += 5
    assert unsolicited.pause_s() == 0, "a pause makes good"
    for _ in range(11):
        assert not unsolicited.flooding
        for _ in range(11):
            unsolicited.charge(1)
        now += unsolicited.pause_s()
    unsolicited.charge(1)
    assert unsolicited.flooding


async def test_large_json_is_read_in_pieces_and_is_the_same() -> None:
    rows = [{"id": number, "text": "ü" * 100, "big": 2**80, "nested": [[], {}, None]} for number in range(6_000)]
    data = wire.encode({"jsonrpc": "2.0", "id": 1, "result": {"rows": rows, "text": "x" * 200_000}})
    assert len(data) > OFF_LOOP_BYTES
    assert await decode_off_loop(data) == wire.decode(data)
    for broken in (data[:-1], data[:-200_100] + b"\xff" + data[-200_100:], data + b"x", b"[" * 200_000):
        with pytest.raises(wire.InvalidJsonError):
            decode_in_pieces(broken)


@pytest.mark.parametrize("spelt", [int, str])
async def test_an_acknowledgement_of_a_request_that_is_over_is_not_taken_for_the_open_one(spelt: type) -> None:
    stream = Stream(era="modern")
    first = await stream.start(Call("subscriptions/listen", {"notifications": {}}))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = await stream.start(Call("subscriptions/listen", {"notifications": {}}))
    before, now = stream.numbers()
    for number in (before, now):
        stream.server_says(method=ACKNOWLEDGED, params={"_meta": {SUBSCRIPTION_ID: spelt(number)}, "for": number})
    stream.server_says(method=ACKNOWLEDGED, params={"for": "none named"})
    stream.server_says(method=ACKNOWLEDGED, params={"_meta": {SUBSCRIPTION_ID: "its own"}, "for": "its own"})
    assert [params["for"] for _, params in stream.heard] == [now, "none named", "its own"]
    await stream.finish()
    await second
