"""Legacy sessions: handshake, requests, questions, streams, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman.core.seams import Change
from pointsman.router.front.http.responses import INTERNAL
from tests.router.front.raw_http import LONG_S, Json, call, initialize, modern_call
from tests.router.front.served_front import Served, serving
from tests.router.front.small_gateway import FORM, SmallGateway

CHANGED = Change("notifications/resources/list_changed", {})


def plain(method: str, params: Json | None = None, client_id: Any = 1) -> Json:
    return {"jsonrpc": "2.0", "id": client_id, "method": method, "params": params or {}}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_each_legacy_version_is_spoken(version: str) -> None:
    async with serving() as served:
        answer = await served.send(initialize(version))
        result = answer.json["result"]
        assert result["protocolVersion"] == version
        assert result["serverInfo"]["name"] == "pointsman"
        assert result["instructions"] == "Two tools."
        assert "tools" in result["capabilities"]
        session = [("Mcp-Session-Id", answer.headers["mcp-session-id"]), ("MCP-Protocol-Version", version)]
        assert (await served.send(call("echo", {"text": "hi"}), headers=session)).text == "hi"
        client = served.gateway.requests[-1].client
        assert (client.name, client.era, client.version, client.log_level) == ("raw", "legacy", version, "info")


async def test_an_unknown_version_is_answered_with_our_newest() -> None:
    async with serving() as served:
        assert (await served.send(initialize("1999-01-01"))).json["result"]["protocolVersion"] == "2025-11-25"


async def test_a_second_initialize_in_a_session_is_refused() -> None:
    async with serving() as served:
        session = await served.open_session()
        answer = await served.send(initialize(), headers=session)
        assert (answer.status, answer.reason) == (400, "bad_request")
        assert served.front.sessions_open == 1


async def test_ping_and_log_level_are_answered_by_the_front() -> None:
    async with serving() as served:
        session = await served.open_session()
        assert (await served.send(plain("ping"), headers=session)).json["result"] == {}
        assert (await served.send(plain("logging/setLevel", {"level": "debug"}), headers=session)).json["result"] == {}
        assert (await served.send(plain("logging/setLevel", {"level": "loud"}), headers=session)).code == -32602
        assert (await served.send(plain("logging/setLevel", {"level": []}), headers=session)).code == -32602
        await served.send(call("echo", meta={"progressToken": "p1"}), headers=session)
        (request,) = served.gateway.requests
        assert (request.client.log_level, request.client.progress_token) == ("debug", "p1")


async def test_what_no_server_has_is_not_found() -> None:
    async with serving() as served:
        session = await served.open_session()
        for method in ("nope/nope", "server/discover", "subscriptions/listen", "prompts/list"):
            answer = await served.send(plain(method), headers=session)
            assert (answer.status, answer.code) == (200, -32601)


@pytest.mark.parametrize(
    "broken",
    [
        plain("tools/call"),
        plain("tools/call", {"name": 1}),
        plain("tools/call", {"name": "echo", "arguments": "x"}),
        plain("tools/call", {"name": "echo", "arguments": []}),
        plain("tools/list", {"cursor": 7}),
        plain("resources/read", {"uri": None}),
        plain("prompts/get", {"name": ["x"]}),
        plain("completion/complete", {"ref": "x"}),
        plain("tools/call", {"name": "echo", "_meta": {"progressToken": 1.5}}),
        plain("tools/call", {"name": "no such tool"}),
    ],
)
async def test_parameters_of_the_wrong_shape_are_invalid(broken: Json) -> None:
    async with serving() as served:
        session = await served.open_session()
        answer = await served.send(broken, headers=session)
        assert (answer.status, answer.code) == (200, -32602)


async def test_two_calls_with_one_id_both_get_their_own_answer() -> None:
    async with serving() as served:
        session = await served.open_session()
        first = await served.start(call("slow", {"text": "first"}, client_id=7), headers=session)
        await served.gateway.entered.acquire()
        second = await served.start(call("slow", {"text": "second"}, client_id=7), headers=session)
        await served.gateway.entered.acquire()
        served.gateway.leave.set()
        answers = [await first.answer(), await second.answer()]
        assert [(a.json["id"], a.text) for a in answers] == [(7, "first"), (7, "second")]
        ours = [request.id for request in served.gateway.requests]
        assert len(set(ours)) == 2
        assert "7" not in ours
        await first.close()
        await second.close()


async def test_cancelling_an_id_cancels_all_that_run_under_it() -> None:
    async with serving() as served:
        session = await served.open_session()
        running = [await served.start(call("slow", client_id=7), headers=session) for _ in range(2)]
        other = await served.start(call("slow", client_id="7"), headers=session)
        for _ in range(3):
            await served.gateway.entered.acquire()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await served.send(cancel, headers=session)).status == 202
        for connection in running:
            answer = await connection.answer()
            assert (answer.status, answer.code) == (200, -32800)
            await connection.close()
        served.gateway.leave.set()
        assert (await other.answer()).code is None
        await other.close()


@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": [7]}, {"requestId": "unknown"}])
async def test_a_cancellation_of_nothing_is_accepted(params: Json) -> None:
    async with serving() as served:
        session = await served.open_session()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert (await served.send(cancel, headers=session)).status == 202


async def test_a_stolen_session_looks_like_an_unknown_one() -> None:
    async with serving() as served:
        session = await served.open_session()
        unknown = await served.send(call("echo"), headers=[("Mcp-Session-Id", "0" * 40)])
        assert unknown.status == 404
        for how in (
            {"token": "secret-b"},
            {"path": "/projects/research/mcp"},
            {"headers": [*session, ("X-Pointsman-Project", "research")]},
        ):
            stolen = await served.send(call("echo"), **{"headers": session, **how})
            assert (stolen.status, stolen.body) == (unknown.status, unknown.body)
        for verb in ("GET", "DELETE"):
            assert (await served.send(verb=verb, headers=session, token="secret-b")).status == 404
        assert (await served.send(call("echo"), headers=session)).status == 200
        assert len(served.gateway.requests) == 1


async def test_a_thief_cannot_cancel_or_answer() -> None:
    async with serving() as served:
        session = await served.open_session({"elicitation": {}})
        asking = await served.start(call("ask"), headers=session)
        await asking.head()
        question = await asking.event()
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "stolen"}}
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        for message in (reply, cancel):
            assert (await served.send(message, headers=session, token="secret-b")).status == 404
        reply["result"] = {"action": "accept"}
        assert (await served.send(reply, headers=session)).status == 202
        assert (await asking.event())["result"]["content"][0]["text"] == "accept"
        await asking.close()


async def test_without_a_session_there_is_only_initialize() -> None:
    async with serving() as served:
        for body in (call("echo"), plain("ping"), {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            assert (await served.send(body)).status == 400
        for verb in ("GET", "DELETE"):
            assert (await served.send(verb=verb)).status == 400


async def test_a_deleted_session_is_gone_and_its_calls_with_it() -> None:
    async with serving() as served:
        session = await served.open_session()
        running = await served.start(call("slow"), headers=session)
        stream = await served.start(None, verb="GET", headers=session)
        await served.gateway.entered.acquire()
        await served.gateway.listening.acquire()
        assert (await served.send(verb="DELETE", headers=session)).status == 200
        assert (await running.answer()).code == -32800
        assert (await stream.answer()).status == 200
        assert (await served.send(call("echo"), headers=session)).status == 404
        assert (await served.send(verb="DELETE", headers=session)).status == 404
        assert served.gateway.listeners == []
        await running.close()
        await stream.close()


async def test_the_stream_of_a_session_carries_changes() -> None:
    async with serving() as served:
        session = await served.open_session()
        stream = await served.start(None, verb="GET", headers=session)
        assert "text/event-stream" in await stream.head()
        await served.gateway.listening.acquire()
        served.gateway.publish(CHANGED)
        assert (await stream.event()) == {"jsonrpc": "2.0", "method": CHANGED.method, "params": {}}
        await stream.close()
        await until_no_listener(served)


async def test_a_stream_with_nothing_to_tell_stays_open() -> None:
    async with serving(SmallGateway(silent=True), ping_s=0.02) as served:
        session = await served.open_session(version="2025-06-18")
        stream = await served.start(None, verb="GET", headers=session)
        await stream.head()
        assert [await stream.chunk() for _ in range(3)] == [b": ping\r\n\r\n"] * 3
        assert (await served.send(verb="DELETE", headers=session)).status == 200
        await stream.closed_stream()
        await stream.close()


async def test_the_newest_stream_of_a_session_wins() -> None:
    async with serving() as served:
        session = await served.open_session()
        old = await served.start(None, verb="GET", headers=session)
        await served.gateway.listening.acquire()
        new = await served.start(None, verb="GET", headers=session)
        await served.gateway.listening.acquire()
        assert (await old.answer()).status == 200, "the old stream ended properly"
        served.gateway.publish(CHANGED)
        await new.head()
        assert (await new.event())["method"] == CHANGED.method
        assert len(served.gateway.listeners) == 1
        await old.close()
        await new.close()


async def test_a_stream_needs_a_client_that_reads_events() -> None:
    async with serving() as served:
        session = await served.open_session()
        refused = await served.send(verb="GET", headers=[*session, ("Accept", "application/json")], without=["accept"])
        assert refused.status == 406


async def test_an_answer_is_json_until_something_is_said() -> None:
    async with serving() as served:
        session = await served.open_session()
        quiet = await served.send(call("echo"), headers=session)
        told = await served.send(call("tell", {"times": 2}), headers=session)
        assert quiet.headers["content-type"] == "application/json"
        assert told.headers["content-type"] == "text/event-stream"
        assert [message.get("method") for message in told.messages] == ["notifications/message"] * 2 + [None]
        assert told.text == "told"


async def test_a_quiet_call_is_kept_alive() -> None:
    async with serving(ping_s=0.05) as served:
        session = await served.open_session(version="2025-06-18")
        connection = await served.start(call("slow", {"text": "done"}), headers=session)
        assert "text/event-stream" in await connection.head()
        assert [await connection.chunk() for _ in range(2)] == [b": ping\r\n\r\n"] * 2
        served.gateway.leave.set()
        assert (await connection.event())["result"]["content"][0]["text"] == "done"
        await connection.close()


async def test_a_question_is_asked_on_the_stream_of_its_call() -> None:
    async with serving() as served:
        session = await served.open_session({"elicitation": {}})
        calls = [await served.start(call("ask", client_id=7), headers=session) for _ in range(2)]
        questions = []
        for connection in calls:
            await connection.head()
            questions.append(await connection.event())
        assert all(q["method"] == "elicitation/create" and q["params"] == FORM for q in questions)
        assert questions[0]["id"] != questions[1]["id"]
        for question, word in zip(reversed(questions), ("decline", "accept"), strict=True):
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": word}}
            assert (await served.send(reply, headers=session)).status == 202
        texts = [(await connection.event())["result"]["content"][0]["text"] for connection in calls]
        assert texts == ["accept", "decline"]
        for connection in calls:
            await connection.close()


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"error": {"code": -1, "message": "no human here"}}, "-1 no human here"),
        ({"error": "broken"}, "-32603 The client's answer is malformed"),
        ({"result": []}, "-32603 The client's answer is malformed"),
    ],
)
async def test_an_error_as_an_answer_reaches_the_asker(reply: Json, text: str) -> None:
    async with serving() as served:
        session = await served.open_session({"sampling": {}})
        asking = await served.start(call("ask", {"method": "sampling/createMessage", "params": {}}), headers=session)
        await asking.head()
        question = await asking.event()
        assert (await served.send({"jsonrpc": "2.0", "id": question["id"], **reply}, headers=session)).status == 202
        assert (await asking.event())["result"]["content"][0]["text"] == text
        await asking.close()


@pytest.mark.parametrize(
    ("capabilities", "asked", "params"),
    [
        ({}, "elicitation/create", FORM),
        ({"sampling": {}}, "elicitation/create", FORM),
        ({"elicitation": {"form": {}}}, "elicitation/create", {"mode": "url"}),
        ({"elicitation": {}}, "elicitation/create", {"mode": "url"}),
        ({"elicitation": True}, "elicitation/create", FORM),
        ({}, "roots/list", {}),
        ({"elicitation": {}}, "sampling/createMessage", {}),
        ({"elicitation": {}, "sampling": {}, "roots": {}}, "vendor/question", {}),
    ],
)
async def test_a_client_is_not_asked_what_it_did_not_declare(capabilities: Json, asked: str, params: Json) -> None:
    async with serving() as served:
        session = await served.open_session(capabilities)
        answer = await served.send(call("ask", {"method": asked, "params": params}), headers=session)
        assert answer.text == "CannotAskError"


async def test_a_url_question_goes_to_clients_that_declared_it() -> None:
    async with serving() as served:
        session = await served.open_session({"elicitation": {"url": {}}})
        asking = await served.start(call("ask", {"params": {"mode": "url"}}), headers=session)
        await asking.head()
        params = (await asking.event())["params"]
        assert params.pop("elicitationId"), "this era demands one"
        assert params == {"mode": "url"}
        await asking.close()


async def test_unasked_answers_are_dropped() -> None:
    async with serving() as served:
        session = await served.open_session()
        for client_id in (1, "1", 10**30):
            reply: Json = {"jsonrpc": "2.0", "id": client_id, "result": {}}
            assert (await served.send(reply, headers=session)).status == 202


async def test_a_client_that_leaves_does_not_cancel_its_call() -> None:
    async with serving() as served:
        session = await served.open_session()
        connection = await served.start(call("slow"), headers=session)
        await served.gateway.entered.acquire()
        await connection.close()
        await until_no_connection(served)
        served.gateway.leave.set()
        await until_idle(served)
        assert served.gateway.finished == 1
        assert served.gateway.cancelled.locked()


async def test_a_question_to_a_client_that_left_is_over() -> None:
    async with serving() as served:
        session = await served.open_session({"elicitation": {}})
        asking = await served.start(call("ask"), headers=session)
        await asking.head()
        await asking.event()
        await asking.close()
        await until_idle(served)
        assert served.gateway.finished == 1  # it was told ClientGone


async def test_the_end_of_a_session_ends_its_questions() -> None:
    async with serving() as served:
        session = await served.open_session({"elicitation": {}})
        asking = await served.start(call("ask"), headers=session)
        await asking.head()
        await asking.event()
        assert (await served.send(verb="DELETE", headers=session)).status == 200
        messages = [await asking.event()]
        if "method" in messages[0]:  # the question may be taken back first
            messages.append(await asking.event())
        assert messages[-1]["error"]["code"] == -32800
        await asking.close()


async def test_results_lose_what_only_the_modern_era_knows() -> None:
    async with serving() as served:
        session = await served.open_session()
        assert (await served.send(call("odd"), headers=session)).json["result"] == {"content": []}
        before = dict(served.gateway.shared)
        shared = await served.send(call("odd", {"kind": "shared"}), headers=session)
        assert shared.json["result"] == {"content": []}
        body, headers = modern_call("odd", {"kind": "shared"})
        assert (await served.send(body, headers=headers)).json["result"]["structuredContent"] == [1, 2]
        assert served.gateway.shared == before


async def test_a_fault_of_ours_is_told_in_fixed_words() -> None:
    async with serving() as served:
        session = await served.open_session()
        for broken in (call("fail"), call("odd", {"kind": "unencodable"})):
            answer = await served.send(broken, headers=session)
            assert answer.json["error"] == {"code": -32603, "message": INTERNAL}


async def test_the_wrong_era_in_meta_is_a_mismatch() -> None:
    async with serving() as served:
        session = await served.open_session()
        body, _ = modern_call("echo")
        for headers in (session, [*session, ("MCP-Protocol-Version", "2025-11-25")]):
            answer = await served.send(body, headers=headers)
            assert (answer.status, answer.code, answer.json["id"]) == (400, -32020, 1)


async def test_draining_lets_calls_finish_and_ends_streams() -> None:
    async with serving() as served:
        session = await served.open_session()
        running = await served.start(call("slow"), headers=session)
        stream = await served.start(None, verb="GET", headers=session)
        await served.gateway.entered.acquire()
        await served.gateway.listening.acquire()
        draining = asyncio.ensure_future(served.front.drain(LONG_S))
        assert (await stream.answer()).status == 200
        refused = await served.send(call("echo"), headers=session)
        assert (refused.status, "retry-after" in refused.headers) == (503, True)
        served.gateway.leave.set()
        assert (await running.answer()).status == 200
        await draining
        assert served.front.calls_running == 0
        await running.close()
        await stream.close()


async def test_draining_cancels_what_does_not_finish_and_says_that_it_was_the_gateway() -> None:
    async with serving() as served:
        session = await served.open_session()
        running = await served.start(call("slow"), headers=session)
        await served.gateway.entered.acquire()
        await served.front.drain(0.01)
        error = (await running.answer()).json["error"]
        assert error["code"] == -32603
        assert "gateway is stopping" in error["message"]
        assert "check before you repeat it" in error["message"]
        await running.close()


async def until_no_listener(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.gateway.listeners:
            await asyncio.sleep(0.01)


async def until_no_connection(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.connections:
            await asyncio.sleep(0.01)


async def until_idle(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.front.calls_running:
            await asyncio.sleep(0.01)
