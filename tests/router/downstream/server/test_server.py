"""A server as the catalog and the gateway see it: status, deadlines, errors that say what happened."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest

from pointsman.config.model import Limits
from pointsman.config.sections.server import Timeouts
from pointsman.core.errors import CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.model import Json, ToolSource
from pointsman.core.seams import CannotAskError, Change, Downstream, FrontRequest
from pointsman.router.downstream.http.connect import connect_http
from pointsman.router.downstream.server import server as server_module
from pointsman.router.downstream.server.server import DownstreamServer
from tests.router.downstream.http_parts import PATIENCE_S, Back, front_request, text_of, until
from tests.servers.http_mcp import HttpMcp, serving


class Opened:
    def __init__(self, timeouts: Timeouts) -> None:
        self.changes: list[tuple[str, Change]] = []
        self.now = 100.0
        self.server = DownstreamServer(
            "s",
            "Server",
            timeouts,
            generations=itertools.count(1),
            clock=lambda: self.now,
            on_change=lambda server_id, change: self.changes.append((server_id, change)),
        )

    async def call(self, name: str, back: Back | None = None, **arguments: object) -> Json:
        return await self.call_for(front_request(), name, back, **arguments)

    async def call_for(self, request: FrontRequest, name: str, back: Back | None = None, **arguments: object) -> Json:
        params = {"name": name, "arguments": arguments}
        return await self.server.request("tools/call", params, request, back or Back())


@asynccontextmanager
async def attached(
    era: Literal["legacy", "modern"], timeouts: Timeouts | None = None, limits: Limits | None = None
) -> AsyncIterator[tuple[HttpMcp, Opened]]:
    async with asyncio.timeout(PATIENCE_S), serving(era) as http:
        opened = Opened(timeouts or Timeouts())
        connection = await connect_http(http.url, {}, "auto", 5.0, limits or Limits(), opened.server.notice)
        live = opened.server.attach(connection)
        try:
            yield http, opened
        finally:
            await live.retire(0)


async def test_a_server_fits_both_seams() -> None:
    server = Opened(Timeouts()).server
    source: ToolSource = server
    downstream: Downstream = server
    assert source.id == "s"
    assert downstream is not None


async def test_a_running_server_lists_and_answers() -> None:
    async with attached("legacy") as (http, opened):
        assert opened.server.status.state == "running"
        assert await opened.server.tools_page(None) == {"tools": http.tools}
        assert text_of(await opened.call("echo", a=1)) == '{"a": 1}'
        await opened.server.tools_page("page-2")
        assert http.params[-1] == {"cursor": "page-2"}


async def test_a_server_without_resources_or_prompts_is_not_asked_for_them() -> None:
    async with attached("legacy") as (http, opened):
        assert await opened.server.list_page("prompts/list", None) == {"prompts": []}
        assert "prompts/list" not in http.seen
        assert await opened.server.list_page("resources/templates/list", None) == {"resourceTemplates": []}
        with pytest.raises(DownstreamError):
            await opened.server.list_page("resources/list", None)


async def test_a_server_without_tools_is_not_asked_for_them() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("legacy") as http:
        http.capabilities = {"prompts": {}}
        opened = Opened(Timeouts())
        live = opened.server.attach(await connect_http(http.url, {}, "auto", 5.0, Limits(), opened.server.notice))
        assert await opened.server.tools_page(None) == {"tools": []}
        assert "tools/list" not in http.seen
        await live.retire(0)


async def test_a_lost_server_is_restarting_until_it_is_given_up_and_that_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "RESTART_S", 0.05)
    opened = Opened(Timeouts())
    server = opened.server
    async with serving("legacy") as http:
        live = server.attach(await connect_http(http.url, {}, "auto", 5.0, Limits(), server.notice))
        generation = server.generation
        assert not server.restarting
        server.detach(live, "it was ended by SIGKILL")
        server.fail("it could not be started")  # an attempt that fails does not end the wait
        assert server.restarting
        assert server.keeps_list_of(generation)
        opened.changes.clear()
        await server.restarted()
        assert not server.restarting
        assert not server.keeps_list_of(generation)
        assert [change.method for _, change in opened.changes] == ["notifications/tools/list_changed"]
        await live.retire(0)


@pytest.mark.parametrize("how", ["changed before", "changed", "stopped"])
async def test_a_server_that_the_configuration_changes_keeps_no_list(how: str) -> None:
    opened = Opened(Timeouts())
    server = opened.server
    async with serving("legacy") as http:
        connections = [await connect_http(http.url, {}, "auto", 5.0, Limits(), server.notice) for _ in range(2)]
        live = server.attach(connections[0])
        generation = server.generation
        if how == "changed before":
            server.changed()
            assert server.status.state == "running"
        server.detach(live, "it was ended by SIGKILL")
        if how == "changed":
            server.changed()
        elif how == "stopped":
            server.stop("disabled")
        assert not server.restarting
        if how != "stopped":
            again = server.attach(connections[1])
            server.detach(again, "it was ended by SIGKILL")
            assert server.restarting
            assert not server.keeps_list_of(generation)  # of the old configuration
            server.stop("the test is over")
            await again.retire(0)
        await connections[1].close()
        await live.retire(0)


async def test_a_server_that_is_not_there_says_why() -> None:
    opened = Opened(Timeouts())
    opened.server.fail("it refused the connection")
    with pytest.raises(ServerUnavailableError, match="Server `s` is not available: it refused the connection"):
        await opened.call("echo")
    with pytest.raises(ServerUnavailableError, match="it refused the connection"):
        await opened.server.tools_page(None)


async def test_since_tells_when_the_state_began_not_when_it_was_last_confirmed() -> None:
    opened = Opened(Timeouts())
    opened.now = 200.0
    opened.server.fail("first")
    opened.now = 300.0
    opened.server.fail("second")
    assert (opened.server.status.reason, opened.server.status.since) == ("second", 200.0)


async def test_a_call_without_an_answer_ends_at_the_servers_call_s_and_is_cancelled_there() -> None:
    async with attached("modern", Timeouts(call_s=0.05)) as (http, opened):
        with pytest.raises(CallTimeoutError, match=r"did not answer within 0\.05 s"):
            await opened.call("wait")
        await until(lambda: "wait" in http.cancelled)
        assert opened.server.status.state == "running"


async def test_a_list_has_its_own_clock() -> None:
    async with attached("modern", Timeouts(list_s=0.05)) as (http, opened):
        http.hold_lists = asyncio.Event()
        with pytest.raises(CallTimeoutError):
            await opened.server.tools_page(None)


async def test_the_time_in_which_a_person_is_asked_does_not_count() -> None:
    thinking = asyncio.Event()

    async def answer(method: str, params: Json) -> Json:
        await thinking.wait()
        return {"action": "accept", "content": {"who": "Ada"}}

    async with attached("legacy", Timeouts(call_s=1.0)) as (_, opened):
        back = Back(answer)
        call = asyncio.create_task(opened.call("ask", back))
        await until(lambda: bool(back.asked))
        await asyncio.sleep(1.2)  # more than the limit
        assert not call.done()
        thinking.set()
        assert '"who": "Ada"' in text_of(await call)


async def test_after_the_answer_the_clock_goes_on() -> None:
    async with attached("legacy", Timeouts(call_s=0.1)) as (http, opened):
        http.deaf_after_asking = True
        with pytest.raises(CallTimeoutError):
            await opened.call("ask", Back())


async def test_a_broken_budget_and_a_lost_connection_name_what_happened() -> None:
    async with attached("modern", limits=Limits(result_bytes=10_000)) as (http, opened):
        with pytest.raises(ServerUnavailableError, match="it sent more than 10000 bytes for one call"):
            await opened.call("echo", size=20_000)
        http.fails_with = 503
        with pytest.raises(ServerUnavailableError, match="it answered with HTTP 503"):
            await opened.call("echo")
        assert opened.server.status.state == "running"


async def test_a_servers_own_error_stays_what_it_is() -> None:
    async with attached("legacy") as (_, opened):
        with pytest.raises(DownstreamError, match="I will not"):
            await opened.call("refuse")


async def test_a_modern_servers_question_is_asked_of_a_legacy_client_and_the_call_repeated() -> None:
    async def answer(method: str, params: Json) -> Json:
        return {"action": "accept"}

    async with attached("modern") as (_, opened):
        result = await opened.call("confirm", Back(answer))
    assert text_of(result) == '{"said": {"action": "accept"}, "state": "s1"}'


async def test_a_modern_client_gets_the_question_as_the_server_sent_it() -> None:
    async with attached("modern") as (_, opened):
        params = {"name": "confirm", "arguments": {}}
        result = await opened.server.request("tools/call", params, front_request(era="modern"), Back())
    assert result["resultType"] == "input_required"
    assert result["requestState"] == "s1"


async def test_a_client_that_cannot_be_asked_gets_an_error_that_names_the_question() -> None:
    async def refuse(method: str, params: Json) -> Json:
        raise CannotAskError

    async with attached("modern") as (_, opened):
        with pytest.raises(DownstreamError, match="needs `elicitation/create`, which this client does not support"):
            await opened.call("confirm", Back(refuse))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_changed_list_makes_a_new_generation_of_its_kind_and_every_change_is_told(
    era: Literal["legacy", "modern"],
) -> None:
    async with attached(era) as (http, opened):
        await http.stream_opened.acquire()
        opened.changes.clear()
        tools, resources = opened.server.generation, opened.server.generation_of("resources")
        http.push({"method": "notifications/tools/list_changed"})
        await until(lambda: opened.server.generation > tools)
        assert opened.server.generation_of("resources") == resources
        http.push({"method": "notifications/resources/updated", "params": {"uri": "a:b"}})
        await until(lambda: len(opened.changes) == 2)
        assert opened.changes == [
            ("s", Change("notifications/tools/list_changed", {})),
            ("s", Change("notifications/resources/updated", {"uri": "a:b"})),
        ]


async def test_a_server_that_comes_or_goes_changes_the_lists_that_it_has() -> None:
    async with attached("legacy") as (_, opened):
        lists = [
            ("s", Change("notifications/tools/list_changed", {})),
            ("s", Change("notifications/resources/list_changed", {})),
        ]
        assert opened.changes == lists
        opened.server.fail("it is gone")
        assert opened.changes == lists * 2
        opened.server.fail("it cannot be started")
        assert opened.changes == lists * 2


async def test_after_a_gap_in_a_modern_servers_stream_its_lists_count_as_changed() -> None:
    async with attached("modern") as (http, opened):
        await http.stream_opened.acquire()
        before = opened.server.generation
        http.streams[0].put_nowait(None)
        await http.stream_opened.acquire()
        await until(lambda: opened.server.generation > before)


async def test_a_session_that_was_opened_again_makes_a_new_generation() -> None:
    async with attached("legacy") as (http, opened):
        before = opened.server.generation
        http.forget_sessions()
        await opened.server.tools_page(None)
        assert opened.server.generation > before


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_watched_resource_is_heard_of_in_both_eras_and_after_a_new_connection(
    era: Literal["legacy", "modern"],
) -> None:
    def heard() -> int:
        if era == "legacy":
            return http.count("resources/subscribe")
        return sum(params.get("notifications", {}).get("resourceSubscriptions") == ["a:b"] for params in http.params)

    async with attached(era) as (http, opened):
        await opened.server.request("resources/subscribe", {"uri": "a:b"}, front_request(), Back())
        await until(lambda: heard() == 1)
        again = await connect_http(http.url, {}, "auto", 5.0, Limits(), opened.server.notice)
        live = opened.server.attach(again)
        await until(lambda: heard() == 2)
        await opened.server.request("resources/unsubscribe", {"uri": "a:b"}, front_request(), Back())
        await live.retire(0)


# ---------------------------------------------------------------------- a modern client at a modern server


async def test_a_modern_client_gets_the_question_and_its_answer_goes_to_the_server_as_it_came() -> None:
    async with attached("modern") as (http, opened):
        asked = await opened.call_for(front_request(era="modern"), "confirm")
        assert asked["resultType"] == "input_required"
        assert asked["requestState"] == "s1"
        assert set(asked["inputRequests"]) == {"sure"}
        assert http.count("tools/call") == 1
        answers = {"sure": {"action": "accept", "content": {}}}
        params = {"name": "confirm", "arguments": {}, "inputResponses": answers, "requestState": "s1"}
        done = await opened.server.request("tools/call", params, front_request(era="modern"), Back())
        assert done["resultType"] == "complete"
        sent = [params for params in http.params if params.get("name") == "confirm"][-1]
        assert (sent["inputResponses"], sent["requestState"]) == (answers, "s1")


async def test_a_modern_client_is_not_shown_a_question_of_a_kind_that_it_did_not_declare() -> None:
    async with attached("modern") as (_, opened):
        with pytest.raises(DownstreamError, match="needs `elicitation/create`, which this client does not support"):
            await opened.call_for(front_request(era="modern", capabilities={"sampling": {}}), "confirm")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_task_is_not_handed_to_a_client_that_could_do_nothing_with_it(
    era: Literal["legacy", "modern"],
) -> None:
    async with attached("modern") as (_, opened):
        with pytest.raises(DownstreamError, match="a result of type `task`, which this gateway does not support"):
            await opened.call_for(front_request(era=era), "task")


async def test_a_client_that_knows_tasks_does_not_make_a_server_believe_that_we_carry_them() -> None:
    tasks, other = "io.modelcontextprotocol/tasks", "com.example/other"
    able: Json = {"elicitation": {}, "tasks": {}, "extensions": {tasks: {}, other: {}}}
    async with attached("modern") as (http, opened):
        await opened.call_for(front_request(era="modern", capabilities=able), "echo")
        sent = next(params for params in http.params if params.get("name") == "echo")
        declared = sent["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert declared == {"elicitation": {}, "extensions": {other: {}}}


# ---------------------------------------------------------------------- the log level


async def test_a_legacy_server_is_told_the_lowest_level_that_any_client_wants() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("legacy") as http:
        http.capabilities = {"tools": {}, "logging": {}}
        opened = Opened(Timeouts())
        live = opened.server.attach(await connect_http(http.url, {}, "auto", 5.0, Limits(), opened.server.notice))
        for level in ("warning", "error", None, "debug", "info"):
            await opened.call_for(front_request(log_level=level), "echo")
        told = [params["level"] for params in http.params if "level" in params]
        assert told == ["warning", "debug"]
        http.forget_sessions()
        await opened.server.tools_page(None)
        await until(lambda: http.count("logging/setLevel") == 3)
        assert any(params.get("level") == "debug" for params in http.params[-4:])
        await live.retire(0)


async def test_a_server_without_logging_is_told_no_level() -> None:
    async with attached("legacy") as (http, opened):
        await opened.call_for(front_request(log_level="debug"), "echo")
        assert "logging/setLevel" not in http.seen
