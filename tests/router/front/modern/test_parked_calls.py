"""A modern client in front of a server that asks in the middle of a call: the call is parked between the rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from pointsman.config.model import Limits
from tests.router.front.raw_http import LONG_S, NAMESPACE, Json, modern_call
from tests.router.front.rounds import ELICITS, accept, answers, asked, called, retried, retry_of, state
from tests.router.front.served_front import Served, serving
from tests.router.front.small_gateway import FORM

INVALID = (400, -32602)


async def test_a_question_is_the_answer_and_the_retry_brings_the_result() -> None:
    async with serving() as served:
        first = await called(served, "ask")
        (question,) = asked(first).values()
        assert question == {"method": "elicitation/create", "params": FORM}
        assert first.last["result"]["_meta"][NAMESPACE + "serverInfo"]["name"] == "pointsman"
        assert (served.front.calls_parked, served.front.calls_running) == (1, 1)
        last = await retried(served, first, "ask")
        assert (last.text, last.last["id"], last.last["result"]["resultType"]) == ("accept", 2, "complete")
        assert len(served.gateway.requests) == 1, "the retry never reaches the gateway"
        await until_nothing_is_left(served)


@pytest.mark.parametrize("turns", [0, 5], ids=["in one turn of the loop", "in turns that follow"])
async def test_questions_asked_in_one_breath_are_one_answer(turns: int) -> None:
    async with serving() as served:
        arguments = {"together": 3, "turns": turns}
        first = await called(served, "ask_all", arguments)
        assert len(asked(first)) == 3
        assert (await retried(served, first, "ask_all", arguments)).text == "0.0 0.1 0.2"


async def test_many_rounds_of_one_call() -> None:
    async with serving() as served:
        arguments = {"times": 5}
        answer = await called(served, "ask_all", arguments)
        states = {state(answer)}
        for _ in range(4):
            answer = await retried(served, answer, "ask_all", arguments)
            states.add(state(answer))
        assert len(states) == 5
        assert (await retried(served, answer, "ask_all", arguments)).text == "0.0 1.0 2.0 3.0 4.0"
        await until_nothing_is_left(served)


async def test_what_is_left_without_an_answer_is_asked_again() -> None:
    async with serving() as served:
        arguments = {"together": 2}
        first = await called(served, "ask_all", arguments)
        one, two = answers(first, lambda message: message).items()
        second = await retried(served, first, "ask_all", arguments, responses=dict([one]))
        assert list(asked(second)) == [two[0]]
        third = await retried(served, second, "ask_all", arguments, responses={"unknown": accept("x")})
        assert list(asked(third)) == [two[0]]
        assert (await retried(served, third, "ask_all", arguments)).text == "0.0 0.1"


async def test_what_is_said_in_a_round_carries_the_progress_token_of_that_round() -> None:
    async with serving() as served:
        arguments = {"times": 2}
        first = await called(served, "ask_all", arguments, progressToken="first")
        assert [message["params"]["progressToken"] for message in first.messages[:-1]] == ["first"]
        given = answers(first, lambda message: message)
        body, headers = retry_of(first, "ask_all", arguments, given, progressToken="second")
        second = await served.send(body, headers=headers)
        assert second.headers["content-type"] == "text/event-stream"
        assert second.messages[0]["params"] == {"progressToken": "second", "progress": 1}
        assert (await retried(served, second, "ask_all", arguments)).text == "0.0 1.0"


@pytest.mark.parametrize(
    ("tool", "arguments", "token"),
    [("ask", {}, "secret-b"), ("ask", {"other": 1}, "secret-a"), ("ask_all", {}, "secret-a")],
    ids=["another token", "other arguments", "another tool"],
)
async def test_a_state_is_good_for_its_caller_and_its_call_only(tool: str, arguments: Json, token: str) -> None:
    async with serving() as served:
        first = await called(served, "ask")
        stolen = await retried(served, first, tool, arguments, token=token)
        assert (stolen.status, stolen.code) == INVALID
        assert stolen.last["error"]["data"]["reason"] == "invalid_request_state"
        assert len(served.gateway.requests) == 1
        assert (await retried(served, first, "ask")).text == "accept"


async def test_another_project_of_the_same_token_is_another_caller() -> None:
    async with serving() as served:
        first = await called(served, "ask")
        body, headers = retry_of(first, "ask", None, answers(first, str))
        stolen = await served.send(body, headers=headers, path="/projects/research/mcp")
        assert (stolen.status, stolen.code) == INVALID


async def test_a_tampered_state_is_refused() -> None:
    async with serving() as served:
        first = await called(served, "ask")
        good = state(first)
        flipped = good[:40] + ("A" if good[40] != "A" else "B") + good[41:]
        forgeries: list[Any] = [
            flipped,
            good + "=",
            good + "!",
            good[:-4],
            "",
            "v1.",
            "v2" + good[2:],
            "ünsinn",
            7,
            {},
            [],
        ]
        for forged in forgeries:
            body, headers = retry_of(first, "ask", None, answers(first, str))
            body["params"]["requestState"] = forged
            answer = await served.send(body, headers=headers)
            assert (answer.status, answer.code) == INVALID, forged
        assert (await retried(served, first, "ask")).text == "accept"


async def test_a_used_state_is_over() -> None:
    async with serving() as served:
        first = await called(served, "ask")
        assert (await retried(served, first, "ask")).text == "accept"
        again = await retried(served, first, "ask")
        assert (again.status, again.code) == INVALID


@pytest.mark.parametrize(
    ("responses", "named"),
    [
        ([], "`inputResponses`"),
        ("x", "`inputResponses`"),
        ({"q1": "x"}, "`inputResponses`"),
        ({"q1": None}, "`inputResponses`"),
        ({"q1": {}}, "`inputResponses.q1`: `action`"),
        ({"q1": {"action": "yes"}}, "`inputResponses.q1`: `action`"),
        ({"q1": {"action": ["accept"]}}, "`inputResponses.q1`: `action`"),
        ({"q1": {"action": "accept", "content": "Ada"}}, "`inputResponses.q1`: `content`"),
    ],
)
async def test_answers_of_the_wrong_shape_are_named_and_leave_the_call_parked(responses: Json, named: str) -> None:
    async with serving() as served:
        first = await called(served, "ask")
        body, headers = retry_of(first, "ask", None, responses)
        broken = await served.send(body, headers=headers)
        assert (broken.status, broken.code) == INVALID
        assert broken.last["error"]["message"].startswith(named)
        assert "still open" in broken.last["error"]["message"]
        assert (await retried(served, first, "ask")).text == "accept"


async def test_one_answer_of_the_wrong_shape_leaves_all_questions_open() -> None:
    async with serving() as served:
        arguments = {"together": 2}
        first = await called(served, "ask_all", arguments)
        one, two = answers(first, lambda message: message)
        broken = await retried(served, first, "ask_all", arguments, responses={one: accept("x"), two: {"action": 1}})
        assert (broken.status, broken.code) == INVALID
        assert f"`inputResponses.{two}`" in broken.last["error"]["message"]
        assert (await retried(served, first, "ask_all", arguments)).text == "0.0 0.1"


async def test_a_question_that_nobody_answers_ends_its_call() -> None:
    async with serving(limits=Limits(parked_s=0.05)) as served:
        first = await called(served, "ask")
        await within(served.gateway.cancelled.acquire())
        await until_nothing_is_left(served)
        late = await retried(served, first, "ask")
        assert (late.status, late.code) == INVALID


async def test_a_call_that_is_over_can_ask_nothing_more() -> None:
    async with serving(limits=Limits(parked_s=0.05)) as served:
        assert len(asked(await called(served, "stubborn"))) == 2
        await within(served.gateway.cancelled.acquire())
        assert served.gateway.words == ["ClientGoneError", "ClientGoneError"]
        await until_nothing_is_left(served)


async def test_a_result_that_came_while_the_client_was_thinking_is_kept_for_its_retry() -> None:
    async with serving() as served:
        first = await called(served, "impatient")
        await served.gateway.entered.acquire()
        served.gateway.leave.set()
        await until_idle(served)
        assert served.front.calls_parked == 1
        assert (await retried(served, first, "impatient")).text == "went on without"
        await until_nothing_is_left(served)


async def test_a_state_expires_by_the_wall_clock() -> None:
    now = 1_000_000.0
    async with serving(limits=Limits(parked_s=300), wall_clock=lambda: now) as served:
        first = await called(served, "ask")
        now += 301
        late = await retried(served, first, "ask")
        assert (late.status, late.code) == INVALID
        now -= 2
        assert (await retried(served, first, "ask")).text == "accept"


async def test_parked_calls_are_limited() -> None:
    async with serving(limits=Limits(parked=2)) as served:
        parked = [await called(served, "ask") for _ in range(2)]
        assert (await called(served, "ask")).text == "CannotAskError"
        for first in parked:
            assert (await retried(served, first, "ask")).text == "accept"
        asked(await called(served, "ask"))


async def test_a_token_that_never_answers_leaves_room_for_others() -> None:
    body, headers = modern_call("ask", None, capabilities=ELICITS)
    async with serving(limits=Limits(parked=4)) as served:
        for _ in range(2):
            asked(await served.send(body, headers=headers, token="secret-a"))
        assert (await served.send(body, headers=headers, token="secret-a")).text == "CannotAskError"
        asked(await served.send(body, headers=headers, token="secret-b"))


async def test_a_client_that_leaves_its_retry_cancels_the_call() -> None:
    async with serving() as served:
        arguments = {"slowly": True}
        first = await called(served, "ask_all", arguments)
        body, headers = retry_of(first, "ask_all", arguments, answers(first, str))
        waiting = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        await waiting.close()
        await within(served.gateway.cancelled.acquire())
        await until_nothing_is_left(served)


async def test_a_client_that_leaves_before_it_is_asked_leaves_nothing_parked() -> None:
    async with serving() as served:
        body, headers = modern_call("slow", capabilities=ELICITS)
        connection = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        await connection.close()
        await within(served.gateway.cancelled.acquire())
        await until_nothing_is_left(served)


async def test_the_newest_retry_gets_the_answer() -> None:
    async with serving() as served:
        arguments = {"slowly": True}
        first = await called(served, "ask_all", arguments)
        body, headers = retry_of(first, "ask_all", arguments, answers(first, str))
        old = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        new = await served.start({**body, "id": 3}, headers=headers)
        assert (await old.answer()).code == -32800
        served.gateway.leave.set()
        answer = await new.answer()
        assert (answer.last["id"], answer.text) == (3, "0.0")
        await old.close()
        await new.close()


async def test_a_parked_call_outlives_the_connection_that_made_it() -> None:
    async with serving() as served:
        connection = await served.connect()
        body, headers = modern_call("ask", capabilities=ELICITS)
        first = await served.send(body, headers=headers)
        await connection.close()
        assert (await retried(served, first, "ask")).text == "accept"


async def test_many_clients_get_the_answers_to_their_own_questions() -> None:
    async with serving() as served:

        async def client(number: int) -> str:
            arguments = {"times": 2, "together": 2, "client": number}
            answer = await called(served, "ask_all", arguments)
            for _ in range(2):
                given = answers(answer, lambda message: f"{number}/{message}")
                answer = await retried(served, answer, "ask_all", arguments, responses=given)
            return answer.text

        texts = await asyncio.gather(*(client(number) for number in range(20)))
        assert texts == [f"{n}/0.0 {n}/0.1 {n}/1.0 {n}/1.1" for n in range(20)]
        await until_nothing_is_left(served)


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"sampling": {}}])
async def test_a_client_is_not_asked_what_it_did_not_declare(capabilities: Json) -> None:
    async with serving() as served:
        body, headers = modern_call("ask", capabilities=capabilities)
        assert (await served.send(body, headers=headers)).text == "CannotAskError"
        assert served.front.calls_parked == 0


async def test_what_only_the_legacy_era_knows_is_taken_out_of_a_question() -> None:
    async with serving() as served:
        params = {"mode": "url", "message": "Sign in", "url": "https://x.example", "elicitationId": "e1", "task": {}}
        body, headers = modern_call("ask", {"params": params}, capabilities={"elicitation": {"url": {}}})
        (question,) = asked(await served.send(body, headers=headers)).values()
        assert question["params"] == {"mode": "url", "message": "Sign in", "url": "https://x.example"}


async def test_draining_ends_parked_calls_at_once() -> None:
    async with serving() as served:
        await called(served, "ask")
        await within(served.front.drain(LONG_S))
        await until_nothing_is_left(served)
        await within(served.gateway.cancelled.acquire())


async def test_a_modern_servers_state_travels_sealed() -> None:
    async with serving() as served:
        first = await called(served, "rounds")
        assert "server's own" not in state(first)
        last = await retried(served, first, "rounds")
        assert last.text == "server's own: 1 How many?"
        assert served.front.calls_parked == 0
        assert [request.params.get("requestState") for request in served.gateway.requests] == [None, "server's own: 1"]


async def test_a_modern_servers_state_is_opened_by_any_replica_and_by_nobody_else() -> None:
    keys = ("k" * 40, "old" * 20)
    async with serving(request_keys=keys) as one, serving(request_keys=keys[::-1]) as other, serving() as stranger:
        first = await called(one, "rounds")
        assert (await retried(other, first, "rounds")).text == "server's own: 1 How many?"
        refused = await retried(stranger, first, "rounds")
        assert (refused.status, refused.code) == INVALID
        stolen = await retried(other, first, "rounds", token="secret-b")
        assert (stolen.status, stolen.code) == INVALID


async def test_a_parked_call_does_not_survive_its_process_and_says_so() -> None:
    keys = ("k" * 40,)
    async with serving(request_keys=keys) as before:
        first = await called(before, "ask")
    async with serving(request_keys=keys) as after:
        answer = await retried(after, first, "ask")
        assert (answer.status, answer.code) == INVALID
        assert "again" in answer.last["error"]["message"]


async def within(awaitable: Awaitable[object]) -> None:
    async with asyncio.timeout(LONG_S):
        await awaitable


async def until_idle(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.front.calls_running:
            await asyncio.sleep(0.01)


async def until_nothing_is_left(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.front.calls_running or served.front.calls_parked:
            await asyncio.sleep(0.01)
