"""A legacy server over HTTP: sessions, streams, questions, and what happens when the server forgets us."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.config.model import Limits
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    CallNotSentError,
    Connection,
    ConnectionLostError,
    SessionRenewedError,
)
from pointsman.router.downstream.http import legacy
from tests.router.downstream.http_parts import (
    PATIENCE_S,
    Back,
    Notices,
    call_of,
    connected,
    front_request,
    text_of,
    until,
)
from tests.servers.http_mcp import HttpMcp, serving

LIST_CHANGED = "notifications/tools/list_changed"


async def test_a_legacy_server_is_recognised_and_its_session_is_kept() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        assert connection.introduction.era == "legacy"
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'
        sent = server.headers[-1]
    assert sent["Mcp-Session-Id"] == "session-1"
    assert sent["MCP-Protocol-Version"] == "2025-11-25"
    assert server.count("initialize") == 1


async def test_the_session_is_ended_when_the_connection_is_closed() -> None:
    async with serving("legacy") as server:
        async with connected(server.url):
            pass
        assert server.seen[-1] == "DELETE"


async def test_a_server_that_keeps_no_sessions_and_has_no_stream_is_served_all_the_same() -> None:
    async with serving("legacy") as server:
        server.keeps_sessions = server.has_get_stream = False
        async with connected(server.url) as connection:
            assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'
            await until(lambda: "GET" in server.seen)
        assert server.count("GET") == 1
        assert "DELETE" not in server.seen


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_answers_come_as_json_or_as_a_stream_over_one_kept_connection(answers: str) -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        server.answers = "sse" if answers == "sse" else "json"
        for number in range(5):
            assert text_of(await connection.request(call_of("echo", n=number))) == f'{{"n": {number}}}'


async def test_progress_reaches_the_client_under_its_own_token() -> None:
    back = Back()
    async with serving("legacy") as server, connected(server.url) as connection:
        await connection.request(call_of("progress", back, front_request(progress_token="mine")))
    assert [params for _, params in back.told] == [{"progressToken": "mine", "progress": step} for step in (1, 2, 3)]


async def test_a_question_in_the_stream_of_a_call_is_asked_of_that_calls_client() -> None:
    async def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"who": "Ada"}}

    asked, other = Back(answer), Back()
    async with serving("legacy") as server, connected(server.url) as connection:
        waiting = asyncio.create_task(connection.request(call_of("wait", other)))
        await server.arrived.acquire()
        result = await connection.request(call_of("ask", asked))
        server.gate.set()
        await waiting
    assert '"who": "Ada"' in text_of(result)
    assert [method for method, _ in asked.asked] == ["elicitation/create"]
    assert other.asked == []


async def test_a_question_on_the_standing_stream_goes_to_the_only_call_that_can_be_asked() -> None:
    back = Back()
    async with serving("legacy") as server, connected(server.url) as connection:
        await server.stream_opened.acquire()
        waiting = asyncio.create_task(connection.request(call_of("wait", back)))
        await server.arrived.acquire()
        reply = server.expect_reply("q")
        server.push({"id": "q", "method": "elicitation/create", "params": {}})
        assert (await reply)["result"] == {"action": "accept", "content": {}}
        server.gate.set()
        await waiting
    assert len(back.asked) == 1


async def test_a_server_that_asks_on_the_standing_stream_is_asked_one_call_at_a_time() -> None:
    backs = [Back(), Back()]
    async with serving("legacy") as server, connected(server.url) as connection:
        await server.stream_opened.acquire()
        calls = [asyncio.create_task(connection.request(call_of("wait", backs[0])))]
        await server.arrived.acquire()
        for number, back in enumerate(backs):
            reply = server.expect_reply(f"q{number}")
            server.push({"id": f"q{number}", "method": "elicitation/create", "params": {}})
            assert "result" in await reply
            assert len(back.asked) == 1
            if number == 0:
                calls.append(asyncio.create_task(connection.request(call_of("wait", backs[1]))))
                await connection.request(Call("tools/list", {}))  # a round trip later it is still not there
                assert server.count("tools/call") == 1
                server.gate.set()
                await calls[0]
                server.gate.clear()
                await server.arrived.acquire()
        server.gate.set()
        await calls[1]
    assert [len(back.asked) for back in backs] == [1, 1]


async def test_a_changed_list_is_noticed_on_the_standing_stream_also_after_it_was_cut() -> None:
    notices = Notices()
    async with serving("legacy") as server, connected(server.url, notices=notices):
        await server.stream_opened.acquire()
        server.push({"method": LIST_CHANGED})
        await notices.wait_for(LIST_CHANGED)
        server.streams[0].put_nowait(None)
        await server.stream_opened.acquire()
        server.push({"method": "notifications/prompts/list_changed"})
        await notices.wait_for("notifications/prompts/list_changed")


async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_connection_lives_on() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        call = asyncio.create_task(connection.request(call_of("waiting_stream")))
        await server.arrived.acquire()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: "notifications/cancelled" in server.seen)
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'
    assert 2 in server.cancelled  # the first number after the handshake's


async def test_an_error_of_the_server_is_a_refusal() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        with pytest.raises(DownstreamError, match="I will not") as refusal:
            await connection.request(call_of("refuse"))
    assert refusal.value.code == -32050


async def test_a_flood_in_one_call_costs_that_call_only() -> None:
    limits = Limits(messages=50)
    async with serving("legacy") as server, connected(server.url, limits=limits) as connection:
        beside = asyncio.create_task(connection.request(call_of("wait")))
        with pytest.raises(BudgetExceededError, match="more than 50 messages"):
            await connection.request(call_of("flood", Back(), front_request(progress_token=1)))
        server.gate.set()
        await beside
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'


# ---------------------------------------------------------------------- the lost session


@pytest.mark.parametrize(("status", "given"), [(404, None), (400, None), (400, 0), (400, -1)])
async def test_a_lost_session_is_opened_again_and_the_request_repeated_once(status: int, given: int | None) -> None:
    notices = Notices()
    async with serving("legacy") as server, connected(server.url, notices=notices) as connection:
        server.lost_session_status, server.lost_session_id = status, given
        server.forget_sessions()
        assert await connection.request(Call("tools/list", {})) == {"tools": server.tools}
        assert server.count("initialize") == 2
        await notices.wait_for(LIST_CHANGED)


@pytest.mark.parametrize("status", [404, 400])
async def test_a_call_that_finds_its_session_lost_is_not_sent_in_the_next_one(status: int) -> None:
    """The tool may have another meaning by now: who called it has to look at the list first."""
    notices = Notices()
    async with serving("legacy") as server, connected(server.url, notices=notices) as connection:
        server.lost_session_status = status
        server.forget_sessions()
        with pytest.raises(SessionRenewedError):
            await connection.request(call_of("echo"))
        assert notices.methods[0] == LIST_CHANGED  # before the call fails
        assert server.ran == []
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'
        assert server.count("initialize") == 2


async def test_a_call_that_waits_for_its_turn_while_the_session_is_lost_is_not_sent_in_the_next_one() -> None:
    backs = [Back(), Back()]
    async with serving("legacy") as server, connected(server.url) as connection:
        await server.stream_opened.acquire()
        first = asyncio.create_task(connection.request(call_of("wait", backs[0])))
        await server.arrived.acquire()
        reply = server.expect_reply("q")
        server.push({"id": "q", "method": "elicitation/create", "params": {}})
        await reply  # so one call at a time from now on
        second = asyncio.create_task(connection.request(call_of("wait", backs[1])))
        server.forget_sessions()
        await connection.request(Call("tools/list", {}))
        assert not second.done()
        server.gate.set()
        await first
        with pytest.raises(SessionRenewedError):
            await second
        assert server.ran == ["wait"]


async def in_flight(server: HttpMcp, connection: Connection, count: int) -> list[asyncio.Task[Json]]:
    calls = [asyncio.create_task(connection.request(call_of("echo", n=number))) for number in range(count)]
    await asyncio.sleep(0)
    return calls


async def not_sent(calls: list[asyncio.Task[Json]]) -> bool:
    return all(isinstance(one, SessionRenewedError) for one in await asyncio.gather(*calls, return_exceptions=True))


async def test_twenty_calls_that_find_the_session_lost_open_one_new_session_and_none_is_sent() -> None:
    """Also those that arrive between the new `initialize` and its `notifications/initialized`."""
    async with serving("legacy") as server, connected(server.url) as connection:
        server.forget_sessions()
        server.hold_initialized = asyncio.Event()
        calls = await in_flight(server, connection, 20)
        await until(lambda: server.count("notifications/initialized") == 2)
        late = await in_flight(server, connection, 5)
        await asyncio.sleep(0.05)  # room for a call to run into the window, if one could
        assert not any(call.done() for call in calls + late)
        server.hold_initialized.set()
        assert await not_sent(calls)
        assert await not_sent(late)
        assert server.ran == []
        assert server.count("initialize") == 2


async def test_twenty_calls_across_a_restart_of_the_server_open_one_session_and_succeed_in_it() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        await asyncio.gather(*await in_flight(server, connection, 20))  # twenty kept connections
        await server.stop()
        await server.start()
        assert await not_sent(await in_flight(server, connection, 20))
        results = await asyncio.gather(*await in_flight(server, connection, 20))
        assert [text_of(result) for result in results] == [f'{{"n": {number}}}' for number in range(20)]
        assert server.count("initialize") == 2


async def test_calls_under_way_when_the_server_stops_fail_with_a_reason_and_are_not_repeated() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        calls = [asyncio.create_task(connection.request(call_of("wait"))) for _ in range(20)]
        for _ in calls:
            await server.arrived.acquire()
        await server.stop()
        await server.start()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ConnectionLostError), outcome
            assert not isinstance(outcome, CallNotSentError)
        assert server.count("tools/call") == 20
        with pytest.raises(SessionRenewedError):
            await connection.request(call_of("echo"))
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'


async def test_a_server_that_gives_no_new_session_ends_the_connection_with_the_reason() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        server.forget_sessions()
        server.refuses_initialize = True
        with pytest.raises(CallNotSentError, match="HTTP 503") as lost:
            await connection.request(call_of("echo"))
        assert lost.value.over
        async with asyncio.timeout(PATIENCE_S):
            assert "it lost our session and gave no new one" in await connection.ended()


async def test_a_server_that_never_ends_the_handshake_of_a_new_session_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(legacy, "_RENEW_S", 0.05)
    async with serving("legacy") as server, connected(server.url) as connection:
        server.forget_sessions()
        server.hold_initialized = asyncio.Event()
        with pytest.raises(CallNotSentError, match="gave no new one within"):
            await connection.request(call_of("echo"))
        assert "gave no new one within" in await connection.ended()


async def test_the_standing_stream_notices_a_lost_session_without_any_call() -> None:
    notices = Notices()
    async with serving("legacy") as server, connected(server.url, notices=notices):
        await server.stream_opened.acquire()
        server.forget_sessions()
        server.streams[0].put_nowait(None)
        await notices.wait_for(LIST_CHANGED)
        await server.stream_opened.acquire()
        assert server.count("initialize") == 2


async def test_a_stream_that_ends_before_its_answer_is_taken_up_where_it_ended() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        assert text_of(await connection.request(call_of("resumed", a=1))) == '{"a": 1}'
    assert "e1" in server.resumed_from


async def test_a_call_whose_stream_cannot_be_taken_up_because_the_server_has_gone_was_sent() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        await server.stream_opened.acquire()
        server.ends_before_resumption = True
        with pytest.raises(ConnectionLostError, match="refused the connection") as lost:
            await connection.request(call_of("resumed"))
        assert not isinstance(lost.value, CallNotSentError)


async def test_a_list_is_read_page_by_page_as_the_server_sends_it() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        assert await connection.request(Call("tools/list", {})) == {"tools": server.tools}


async def test_subscriptions_to_resources_survive_a_lost_session() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        await connection.request(Call("resources/subscribe", {"uri": "a:b"}))
        server.forget_sessions()
        await connection.request(Call("tools/list", {}))
        await until(lambda: server.count("resources/subscribe") == 2)
