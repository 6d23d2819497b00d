"""A small MCP server on the old HTTP+SSE transport, on a real socket of the test's own process; it can misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Message = dict[str, Any]


class SseServer:
    """Set an attribute to make it misbehave."""

    def __init__(self) -> None:
        self.endpoint = "/messages?session=1"
        self.content_type = "text/event-stream"
        self.stream_status = 200
        self.post_status = 202
        self.keeps_connections = True  # those of POSTs
        self.seen: list[Message] = []
        self.headers: list[dict[str, str]] = []
        self.posts_wait_for: asyncio.Event | None = None
        self.cut = asyncio.Event()  # ends the stream
        self.open_streams = 0
        self.url = ""
        self.site: web.TCPSite  # stopped: no new connection is accepted, and the stream goes on
        self._out: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if self.stream_status != 200:
            return web.Response(status=self.stream_status, headers={"Location": "/elsewhere"})
        response = web.StreamResponse(headers={"Content-Type": self.content_type})
        await response.prepare(request)
        await response.write(b"event: endpoint\r\ndata: %s\r\n\r\n" % self.endpoint.encode())
        self.open_streams += 1
        sending, cut = asyncio.create_task(self.send(response)), asyncio.create_task(self.cut.wait())
        try:
            await asyncio.wait({cut, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.open_streams -= 1
            cut.cancel()
            sending.cancel()
        return response

    async def send(self, response: web.StreamResponse) -> None:
        while True:
            await response.write(await self._out.get())

    async def message(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        message = await request.json()
        if self.posts_wait_for is not None and message.get("method") == "notifications/initialized":
            await self.posts_wait_for.wait()
        self.seen.append(message)
        if self.post_status != 202:
            return web.Response(status=self.post_status)
        self.answer(message)
        response = web.Response(status=202, text="Accepted")
        if not self.keeps_connections:
            response.force_close()
        return response

    def answer(self, message: Message) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "initialize":
            info = {"name": "sse-server", "version": "1"}
            self.result(number, {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/call":
            getattr(self, "tool_" + params["name"])(number, params.get("arguments") or {})
        elif method is None:  # an answer to our one question
            self.result(self.asker, {"content": [], "structuredContent": {"answer": message}})

    def tool_echo(self, number: Any, arguments: Message) -> None:
        self.result(number, {"content": [], "structuredContent": arguments})

    def tool_hang(self, number: Any, arguments: Message) -> None: ...

    def tool_ask(self, number: Any, arguments: Message) -> None:
        self.asker = number
        self.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}})

    def tool_noise(self, number: Any, arguments: Message) -> None:
        self.raw(
            b": ping\n\ndata: not json\n\nevent: other\ndata: {}\n\nevent: endpoint\ndata: http://127.0.0.1:1/\n\n"
        )
        self.result(number, {"content": []})

    def tool_large(self, number: Any, arguments: Message) -> None:
        self.result(number, {"content": [{"type": "text", "text": "x" * arguments["bytes"]}]})

    def tool_cut(self, number: Any, arguments: Message) -> None:
        self.cut.set()

    def result(self, number: Any, result: Message) -> None:
        self.say({"jsonrpc": "2.0", "id": number, "result": result})

    def say(self, message: Message) -> None:
        self.raw(b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n")

    def raw(self, data: bytes) -> None:
        self._out.put_nowait(data)


@asynccontextmanager
async def sse_server() -> AsyncIterator[SseServer]:
    server = SseServer()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_get("/sse", server.stream)
    app.router.add_post("/messages", server.message)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    server.site = web.TCPSite(runner, "127.0.0.1", 0)
    await server.site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}/sse"
    try:
        yield server
    finally:
        server.cut.set()
        await runner.cleanup()
