"""The bridge's session across a restart of the gateway: the order in which it is set up again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from pointsman.core.model import Json
from pointsman.router.bridge.gateway_client import Address, GatewayClient
from pointsman.router.bridge.legacy_session import LegacySession

PATIENCE_S = 10.0
SUBSCRIBE = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "book://1"}}
CALL = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "touch"}}


class SmallGateway:
    """Answers every request, and notes in which order requests and streams arrived."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.cut_stream = asyncio.Event()
        self.open_streams = asyncio.Event()  # clear: a GET waits for its answer
        self.open_streams.set()
        self.stream_asked = asyncio.Event()
        self.stream_status = 200

    async def post(self, request: web.Request) -> web.Response:
        message = await request.json()
        self.seen.append(message["method"])
        result = {"protocolVersion": "2025-11-25"} if message["method"] == "initialize" else {}
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        return web.json_response(answer, headers={"Mcp-Session-Id": "s1"})

    async def get(self, request: web.Request) -> web.StreamResponse:
        self.stream_asked.set()
        await self.open_streams.wait()
        if self.stream_status != 200:
            return web.Response(status=self.stream_status)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self.seen.append("stream")
        await stream.prepare(request)
        await self.cut_stream.wait()
        self.cut_stream.clear()
        return stream

    async def delete(self, request: web.Request) -> web.Response:
        self.open_streams.set()
        self.cut_stream.set()
        return web.Response()


@asynccontextmanager
async def subscribed(gateway: SmallGateway) -> AsyncIterator[LegacySession]:
    """A session with one subscription and an open stream."""
    app = web.Application()
    app.add_routes([web.post("/mcp", gateway.post), web.get("/mcp", gateway.get), web.delete("/mcp", gateway.delete)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def locate() -> Address:
        return Address(f"http://127.0.0.1:{port}/mcp", "ptm_x")

    async def drop(message: bytes) -> None: ...

    try:
        async with asyncio.timeout(PATIENCE_S), GatewayClient(locate, None) as client:
            session = LegacySession(client, drop)
            try:
                await answered(session, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
                await gateway.stream_asked.wait()
                await answered(session, SUBSCRIBE)
                yield session
            finally:
                await session.close()
    finally:
        await runner.cleanup()


async def answered(session: LegacySession, message: Json) -> None:
    async with session.request(message, json.dumps(message).encode()) as answer:
        async for body, _ in answer.messages():
            if message["method"] == "initialize":
                session.begin(answer.session_id, json.loads(body))


async def stream_ended(gateway: SmallGateway) -> None:
    """End the stream as a restart does, and wait until the bridge asks for the next one, which gets no answer yet."""
    gateway.open_streams.clear()
    gateway.stream_asked.clear()
    gateway.seen.clear()
    gateway.cut_stream.set()
    await gateway.stream_asked.wait()


async def test_after_a_restart_the_stream_is_open_before_subscriptions_are_replayed() -> None:
    gateway = SmallGateway()
    async with subscribed(gateway) as session:
        await stream_ended(gateway)
        call = asyncio.create_task(answered(session, CALL))
        await asyncio.sleep(0.3)  # long enough for a replay that does not wait
        before = list(gateway.seen)
        gateway.open_streams.set()
        await call
    assert before == []
    assert gateway.seen == ["stream", "resources/subscribe", "tools/call"]


@pytest.mark.parametrize("status", [405, 503])
async def test_a_stream_that_is_refused_does_not_hold_up_the_call(status: int) -> None:
    gateway = SmallGateway()
    async with subscribed(gateway) as session:
        await stream_ended(gateway)
        call = asyncio.create_task(answered(session, CALL))
        gateway.stream_status = status
        gateway.open_streams.set()
        async with asyncio.timeout(3):
            await call
    assert gateway.seen == ["resources/subscribe", "tools/call"]
