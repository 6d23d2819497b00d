"""The tools of `asker` behind HTTP, in either era: legacy calls ask in the stream of their own answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.servers.asker import Asker, Message, introduced


class AskerHttp:
    def __init__(self, era: str, trace: Path) -> None:
        self._asker = Asker(era, trace)
        self._running: dict[object, asyncio.Task[Message]] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.headers: dict[str, str] = {}  # of the last call, by name in lower case

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/mcp", self._post)
        app.router.add_get("/mcp", self._get)
        app.router.add_delete("/mcp", self._gone)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _get(self, request: web.Request) -> web.Response:
        return web.Response(status=405)

    async def _gone(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _post(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if "method" not in message:
            self._asker.answered(message)
            return web.Response(status=202)
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                task = self._running.get(message["params"]["requestId"])
                if task is not None:
                    task.cancel()
            return web.Response(status=202)
        if (result := introduced(self._asker, message)) is not None:
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})
        if message["method"] != "tools/call":
            error = {"code": -32601, "message": "Method not found"}
            status = 404 if self._asker.era == "modern" else 200
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=status)
        return await self._call(request, message)

    async def _call(self, request: web.Request, message: Message) -> web.StreamResponse:
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def send(said: Message) -> None:
            await response.write(b"event: message\ndata: " + json.dumps(said).encode() + b"\n\n")

        work = asyncio.ensure_future(self._asker.call(message["params"], send))
        self._running[message["id"]] = work
        try:
            result = await work
        finally:
            work.cancel()
            if self._running.get(message["id"]) is work:  # another client may use the same id
                del self._running[message["id"]]
        await send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return response


@asynccontextmanager
async def asker_http(era: str, trace: Path) -> AsyncIterator[AskerHttp]:
    server = AskerHttp(era, trace)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
