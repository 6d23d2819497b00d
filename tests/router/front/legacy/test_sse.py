"""The old HTTP+SSE transport: one stream carries all answers, messages come by POST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.types import TextContent

from pointsman.config.model import Limits
from pointsman.core.seams import Change
from tests.router.front.raw_http import LONG_S, Answer, Connection, Json, call, initialize
from tests.router.front.served_front import Served, serving


class Line:
    """A client of the old transport."""

    def __init__(self, served: Served, stream: Connection, endpoint: str, how: dict[str, Any]) -> None:
        self.served = served
        self.stream = stream
        self.endpoint = endpoint
        self.how = how

    async def post(self, message: Json | bytes | None, **how: Any) -> Answer:
        return await self.served.send(message, **{"path": self.endpoint, **self.how, **how})

    async def asked(self, message: Json) -> Json:
        assert (await self.post(message)).status == 202
        return await self.stream.event()

    async def text(self, message: Json) -> str:
        words: str = (await self.asked(message))["result"]["content"][0]["text"]
        return words


@asynccontextmanager
async def lined(
    served: Served, capabilities: Json | None = None, *, path: str = "/sse", greet: bool = True, **how: Any
) -> AsyncIterator[Line]:
    stream = await served.start(None, verb="GET", path=path, **how)
    assert "text/event-stream" in await stream.head()
    name, data = (await stream.chunk()).decode().splitlines()[:2]
    assert name == "event: endpoint"
    line = Line(served, stream, data.removeprefix("data: "), how)
    try:
        if greet:
            result = (await line.asked(initialize("2024-11-05", capabilities)))["result"]
            assert result["protocolVersion"] == "2024-11-05"
        yield line
    finally:
        await stream.close()


async def test_a_call_is_answered_on_the_stream() -> None:
    async with serving() as served, lined(served) as line:
        assert line.endpoint.startswith("/messages/?session_id=")
        assert (await line.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        assert await line.text(call("echo", {"text": "hi"})) == "hi"
        assert (await line.asked({"jsonrpc": "2.0", "id": 5, "method": "ping"})) == {
            "jsonrpc": "2.0",
            "id": 5,
            "result": {},
        }
        client = served.gateway.requests[-1].client
        assert (client.name, client.era, client.version) == ("raw", "legacy", "2024-11-05")
        assert served.front.sessions_open == 1


async def test_the_project_of_the_path_holds_for_its_messages() -> None:
    async with serving() as served, lined(served, path="/projects/research/sse") as line:
        assert line.endpoint.startswith("/projects/research/messages/?session_id=")
        assert await line.text(call("echo", {"text": "hi"})) == "hi"
        assert served.gateway.requests[-1].caller.project_id == "research"
        elsewhere = "/messages/?" + line.endpoint.partition("?")[2]
        assert (await line.post(call("echo"), path=elsewhere)).status == 404


async def test_the_sdk_client_works() -> None:
    async with serving() as served, asyncio.timeout(LONG_S):
        url = served.url.replace("/mcp", "/sse")
        async with (
            sse_client(url, headers={"Authorization": "Bearer secret-a"}) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            assert "echo" in [tool.name for tool in (await session.list_tools()).tools]
            block = (await session.call_tool("huge", {"bytes": 500_000})).content[0]
            assert isinstance(block, TextContent)
            assert len(block.text) == 500_000


async def test_large_undecoded_content_comes_on_the_stream() -> None:
    async with serving() as served, lined(served) as line:
        assert await line.text(call("huge", {"bytes": 900_000, "undecoded": True})) == "h" * 900_000


async def test_progress_and_questions_come_on_the_same_stream() -> None:
    async with serving() as served, lined(served, {"elicitation": {}}) as line:
        told = await line.asked(call("tell", {"times": 1}))
        assert told["method"] == "notifications/message"
        assert (await line.stream.event())["result"]["content"][0]["text"] == "told"
        question = await line.asked(call("ask"))
        assert question["method"] == "elicitation/create"
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert (await line.asked(reply))["result"]["content"][0]["text"] == "accept"


async def test_calls_run_side_by_side_and_can_be_cancelled() -> None:
    async with serving() as served, lined(served) as line:
        assert (await line.post(call("slow", client_id=7))).status == 202
        await served.gateway.entered.acquire()
        assert await line.text(call("echo", {"text": "meanwhile"})) == "meanwhile"
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await line.asked(cancel))["error"]["code"] == -32800


async def test_the_session_ends_with_its_stream() -> None:
    async with serving() as served:
        async with lined(served) as line:
            assert (await line.post(call("slow"))).status == 202
            await served.gateway.entered.acquire()
        async with asyncio.timeout(LONG_S):
            await served.gateway.cancelled.acquire()
            while served.front.sessions_open or served.front.calls_running:
                await asyncio.sleep(0.01)
        assert (await line.post(call("echo"))).status == 404
        assert served.gateway.listeners == []


async def test_changes_are_told() -> None:
    async with serving() as served, lined(served) as line:
        await served.gateway.listening.acquire()
        served.gateway.publish(Change("notifications/resources/updated", {"uri": "x://1"}))
        served.gateway.publish(Change("notifications/tools/list_changed", {}))
        assert (await line.stream.event())["method"] == "notifications/tools/list_changed"
        subscribe = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "x://1"}}
        assert (await line.asked(subscribe))["result"] == {}
        served.gateway.publish(Change("notifications/resources/updated", {"uri": "x://1"}))
        assert (await line.stream.event())["params"] == {"uri": "x://1"}


async def test_only_the_owner_speaks_on_a_line() -> None:
    async with serving() as served, lined(served) as line:
        for how in ({"token": "secret-b"}, {"headers": [("X-Pointsman-Project", "research")]}):
            assert (await line.post(call("echo"), **how)).status == 404
        assert (await line.post(call("echo"), token=None)).status == 401
        assert (await line.post(call("echo"), path="/messages/")).status == 404
        assert served.gateway.requests == []


async def test_a_token_in_meta_is_enough_for_a_message() -> None:
    async with serving() as served, lined(served) as line:
        assert (await line.post(call("echo", meta={"token": "secret-a"}), token=None)).status == 202
        assert (await line.post(call("echo", meta={"token": "secret-b"}), token=None)).status == 404


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"token": None}, 401),
        ({"token": "unknown"}, 401),
        ({"path": "/projects/other/sse"}, 403),
        ({"without": ["host"], "headers": [("Host", "evil.example")]}, 421),
        ({"headers": [("Origin", "https://evil.example")]}, 403),
        ({"verb": "POST"}, 405),
        ({"without": ["accept"], "headers": [("Accept", "application/json")]}, 406),
    ],
)
async def test_a_stream_is_checked_like_every_request(how: dict[str, Any], status: int) -> None:
    async with serving() as served:
        assert (await served.send(**{"verb": "GET", "path": "/sse", **how})).status == status
        assert served.front.sessions_open == 0


@pytest.mark.parametrize(
    ("message", "how", "status"),
    [
        (b"{", {}, 400),
        ([call("echo")], {}, 400),
        (None, {"verb": "GET"}, 405),
        (call("echo"), {"headers": [("Origin", "https://evil.example")]}, 403),
        (call("echo"), {"without": ["content-type"], "headers": [("Content-Type", "text/plain")]}, 415),
        (call("echo", {"text": "x" * 2000}), {}, 413),
    ],
)
async def test_a_message_is_checked_like_every_request(message: Any, how: dict[str, Any], status: int) -> None:
    async with serving(limits=Limits(body_bytes=1000)) as served, lined(served) as line:
        assert (await line.post(message, **how)).status == status


async def test_before_initialize_there_is_nothing_but_ping() -> None:
    async with serving() as served, lined(served, greet=False) as line:
        assert (await line.asked(call("echo")))["error"]["code"] == -32600
        assert (await line.asked({"jsonrpc": "2.0", "id": 1, "method": "ping"}))["result"] == {}
        broken = await line.asked({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
        assert broken["error"]["code"] == -32602
        assert "result" in await line.asked(initialize())
        assert (await line.asked(initialize()))["error"]["code"] == -32600


async def test_lines_are_limited() -> None:
    async with serving(limits=Limits(sessions=1)) as served, lined(served):
        assert (await served.send(verb="GET", path="/sse")).status == 503


async def test_a_line_is_no_session_of_the_other_transport() -> None:
    async with serving() as served, lined(served) as line:
        session_id = line.endpoint.partition("=")[2]
        assert (await served.send(call("echo"), headers=[("Mcp-Session-Id", session_id)])).status == 404
        ((_, other),) = await served.open_session()
        assert (await line.post(call("echo"), path=f"/messages/?session_id={other}")).status == 404


async def test_an_answer_of_megabytes_is_not_dropped() -> None:
    async with serving() as served, lined(served) as line:
        assert len(await line.text(call("huge", {"bytes": 5_000_000}))) == 5_000_000


async def test_a_quiet_line_is_kept_alive() -> None:
    async with serving(ping_s=0.02) as served, lined(served) as line:
        assert [await line.stream.chunk() for _ in range(2)] == [b": ping\r\n\r\n"] * 2


async def test_draining_lets_calls_be_answered_and_then_ends_the_line() -> None:
    async with serving() as served, lined(served) as line:
        assert (await line.post(call("slow", {"text": "done"}))).status == 202
        await served.gateway.entered.acquire()
        draining = asyncio.ensure_future(served.front.drain(LONG_S))
        await asyncio.sleep(0)
        served.gateway.leave.set()
        assert (await line.stream.event())["result"]["content"][0]["text"] == "done"
        await line.stream.closed_stream()
        await draining


async def test_draining_tells_a_call_that_does_not_finish_before_it_ends_the_line() -> None:
    async with serving() as served, lined(served) as line:
        assert (await line.post(call("slow"))).status == 202
        await served.gateway.entered.acquire()
        await served.front.drain(0.01)
        assert "gateway is stopping" in (await line.stream.event())["error"]["message"]
        await line.stream.closed_stream()


async def test_a_broken_change_ends_the_line_properly() -> None:
    async with serving() as served:
        served.gateway.broken_changes = True
        stream = await served.start(None, verb="GET", path="/sse")
        answer = await stream.answer()
        assert (answer.status, b"secret" in answer.body) == (200, False)
        await stream.close()
