"""The SDK's own client, in both eras: what real assistants are built on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared.subscriptions import ToolsListChanged
from mcp.types import ElicitRequestParams, ElicitResult, LoggingMessageNotificationParams, TextContent

from pointsman.core.seams import Change
from tests.router.front.raw_http import LONG_S
from tests.router.front.served_front import Served, serving

Mode = Literal["legacy", "auto"]
ERAS: tuple[Mode, ...] = ("legacy", "auto")


@asynccontextmanager
async def connected(served: Served, mode: Mode, **callbacks: Any) -> AsyncIterator[Client]:
    async with (
        asyncio.timeout(LONG_S),
        httpx2.AsyncClient(headers={"Authorization": "Bearer secret-a"}, timeout=LONG_S) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode, **callbacks) as client,
    ):
        yield client


async def said(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    block = (await client.call_tool(tool, arguments or {})).content[0]
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("mode", ERAS)
async def test_the_client_lists_and_calls(mode: Mode) -> None:
    async with serving() as served, connected(served, mode) as client:
        assert "echo" in [tool.name for tool in (await client.list_tools()).tools]
        assert await said(client, "echo", {"text": "hi"}) == "hi"
        assert await said(client, "huge", {"bytes": 500_000}) == "h" * 500_000
        assert served.gateway.requests[-1].client.era == ("legacy" if mode == "legacy" else "modern")


@pytest.mark.parametrize("mode", ERAS)
async def test_many_calls_at_once_keep_their_answers(mode: Mode) -> None:
    async with serving() as served, connected(served, mode) as client:
        answers = await asyncio.gather(*(said(client, "echo", {"text": str(n)}) for n in range(50)))
        assert answers == [str(n) for n in range(50)]


@pytest.mark.parametrize("mode", ERAS)
async def test_log_messages_arrive(mode: Mode) -> None:
    heard: list[Any] = []

    async def hear(message: LoggingMessageNotificationParams) -> None:
        heard.append(message.data)

    async with serving() as served, connected(served, mode, logging_callback=hear, log_level="info") as client:
        assert await said(client, "tell", {"times": 3}) == "told"
        while len(heard) < 3:
            await asyncio.sleep(0.01)
    assert heard == ["0 x", "1 x", "2 x"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_is_asked(mode: Mode) -> None:
    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    async with serving() as served, connected(served, mode, elicitation_callback=answer) as client:
        assert await said(client, "ask") == "accept"


async def test_a_modern_client_goes_through_many_rounds() -> None:
    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": params.message})

    async with serving() as served, connected(served, "auto", elicitation_callback=answer) as client:
        assert await said(client, "ask_all", {"times": 3, "together": 2}) == "0.0 0.1 1.0 1.1 2.0 2.1"
        assert await said(client, "rounds") == "server's own: 1 How many?"
        assert served.front.calls_parked == 0


async def test_a_legacy_client_that_loses_its_line_gets_its_answer() -> None:
    heard = asyncio.Event()

    async def hear(message: LoggingMessageNotificationParams) -> None:
        heard.set()

    async with serving() as served, connected(served, "legacy", logging_callback=hear) as client:
        call = asyncio.ensure_future(said(client, "tell", {"slowly": True, "text": "after all"}))
        await heard.wait()
        await served.gateway.entered.acquire()
        for connection in list(served.server.server_state.connections):
            connection.transport.abort()
        served.gateway.leave.set()
        assert await call == "after all"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_cancelled_call_is_cancelled_behind_the_front(mode: Mode) -> None:
    async with serving() as served, connected(served, mode) as client:
        call = asyncio.ensure_future(client.call_tool("slow", {}))
        await served.gateway.entered.acquire()
        call.cancel()
        await served.gateway.cancelled.acquire()
        await asyncio.gather(call, return_exceptions=True)
        assert await said(client, "echo", {"text": "still here"}) == "still here"


async def test_a_legacy_client_hears_of_changes() -> None:
    heard = asyncio.Event()

    async def hear(message: object) -> None:
        heard.set()

    async with serving() as served, connected(served, "legacy", message_handler=hear):
        await served.gateway.listening.acquire()
        served.gateway.publish(Change("notifications/tools/list_changed", {}))
        await heard.wait()


async def test_a_modern_client_listens() -> None:
    async with (
        serving() as served,
        connected(served, "auto") as client,
        listen(client.session, tools_list_changed=True) as subscription,
    ):
        await served.gateway.listening.acquire()
        served.gateway.publish(Change("notifications/tools/list_changed", {}))
        assert isinstance(await anext(aiter(subscription)), ToolsListChanged)


async def test_a_client_that_ends_ends_its_session() -> None:
    async with serving() as served:
        async with connected(served, "legacy"):
            assert served.front.sessions_open == 1
        assert served.front.sessions_open == 0
