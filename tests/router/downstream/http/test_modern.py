"""A modern server over HTTP: every request stands alone, with headers that say what is in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.core.errors import DownstreamError
from pointsman.router.downstream.connection import BudgetExceededError, Call
from tests.router.downstream.http_parts import Back, call_of, connected, front_request, text_of, until
from tests.servers.http_mcp import META, serving


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


async def test_a_modern_server_is_recognised_and_gets_no_session() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        assert connection.introduction.era == "modern"
        assert connection.introduction.server_info["name"] == "modern"
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'
    assert server.seen == ["server/discover", "tools/call"]


async def test_headers_name_the_method_and_the_tool_whatever_its_name() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        for name in ("echo", "größe\n", " edge "):
            await connection.request(call_of(name))  # the server compares headers and body, and refuses what differs
        assert server.headers[-1]["Mcp-Method"] == "tools/call"
        assert server.headers[-1]["Mcp-Name"].startswith("=?base64?")


async def test_a_call_carries_its_clients_capabilities_and_meta_but_nothing_of_ours() -> None:
    ours = {"token": "secret", "projectId": "p", "pointsman/caller": "somebody else", META + "made-up": 1}
    request = front_request(era="modern", meta={"traceparent": "00-1", "vendor/pointsman": 1, **ours})
    async with serving("modern") as server, connected(server.url) as connection:
        await connection.request(call_of("echo", request=request))
    meta = server.params[-1]["_meta"]
    assert meta["traceparent"] == "00-1"
    assert meta[META + "clientCapabilities"] == {"elicitation": {}}
    assert meta["vendor/pointsman"] == 1
    assert not ours.keys() & meta.keys()


async def test_operators_headers_travel_and_cannot_displace_the_protocols_own() -> None:
    headers = {"Authorization": "Bearer down", "Mcp-Method": "nonsense"}
    async with serving("modern") as server, connected(server.url, headers=headers) as connection:
        await connection.request(call_of("echo"))
    assert server.headers[-1]["Authorization"] == "Bearer down"
    assert server.headers[-1]["Mcp-Method"] == "tools/call"


async def test_annotated_arguments_are_mirrored_in_headers_once_the_list_was_seen() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        server.tools = [tool("query", region={"type": "string", "x-mcp-header": "Region"}, limit={"type": "integer"})]
        await connection.request(Call("tools/list", {}))
        await connection.request(call_of("query", region="eu-west", limit=3))
        assert server.headers[-1]["Mcp-Param-Region"] == "eu-west"
        await connection.request(call_of("query", limit=3))
        assert "Mcp-Param-Region" not in server.headers[-1]
        server.tools = [tool("query", region={"type": "string"})]
        await connection.request(Call("tools/list", {}))
        await connection.request(call_of("query", region="eu-west"))
        assert "Mcp-Param-Region" not in server.headers[-1]


async def test_a_tool_whose_annotations_are_invalid_is_left_out_of_the_list() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        bad = tool("bad", region={"type": "string", "x-mcp-header": "no token"})
        server.tools = [tool("good"), bad]
        page = await connection.request(Call("tools/list", {}))
    assert [each["name"] for each in page["tools"]] == ["good"]


async def test_to_cancel_is_to_close_the_response() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        for name in ("wait", "waiting_stream"):  # before the answer's head, and in the middle of its stream
            call = asyncio.create_task(connection.request(call_of(name)))
            await server.arrived.acquire()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda name=name: name in server.cancelled)  # type: ignore[misc]
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'


async def test_progress_reaches_the_client_under_its_own_token() -> None:
    back = Back()
    async with serving("modern") as server, connected(server.url) as connection:
        await connection.request(call_of("progress", back, front_request(progress_token="mine")))
    assert [params["progress"] for _, params in back.told] == [1, 2, 3]
    assert {params["progressToken"] for _, params in back.told} == {"mine"}


async def test_an_error_is_a_refusal_under_any_http_status() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        with pytest.raises(DownstreamError, match="I will not") as refusal:
            await connection.request(call_of("refuse"))
        assert refusal.value.code == -32050
        with pytest.raises(DownstreamError, match="Method not found") as missing:
            await connection.request(Call("prompts/list", {}))
        assert missing.value.code == -32601


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_over_the_limit_is_cut_packed_or_not(packed: bool) -> None:
    limits = Limits(result_bytes=100_000)
    async with serving("modern") as server, connected(server.url, limits=limits) as connection:
        assert len(text_of(await connection.request(call_of("echo", size=90_000, gzip=packed)))) == 90_000
        with pytest.raises(BudgetExceededError, match="more than 100000 bytes"):
            await connection.request(call_of("echo", size=5_000_000, gzip=packed))
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_a_large_answer_within_the_limit_arrives_whole(answers: str) -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        server.answers = "sse" if answers == "sse" else "json"
        assert len(text_of(await connection.request(call_of("echo", size=3_000_000)))) == 3_000_000


async def test_many_calls_at_once_get_their_own_answers() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        results = await asyncio.gather(*(connection.request(call_of("echo", n=number)) for number in range(50)))
    assert [text_of(result) for result in results] == [f'{{"n": {number}}}' for number in range(50)]
