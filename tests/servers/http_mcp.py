"""A small real MCP server over HTTP, legacy (with sessions) or modern, whose every step a test can arrange."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from aiohttp import web
from mcp.shared.inbound import NAME_BEARING_METHODS, decode_header_value

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"


class HttpMcp:
    """Answers on one path. Switches are plain attributes; what it saw is in `seen`, `headers` and `cancelled`."""

    def __init__(self, era: Literal["legacy", "modern"]) -> None:
        self.era = era
        self.port = 0
        self.answers: Literal["json", "sse"] = "json"
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        self.tools: list[dict[str, Any]] = [{"name": "echo", "inputSchema": {"type": "object"}}]
        self.keeps_sessions = True
        self.has_get_stream = True
        self.lost_session_status = 404
        self.lost_session_id: int | None = None  # some servers write 0
        self.refuses_initialize = False
        self.resumed_from: list[str] = []  # Last-Event-ID of each GET that had one
        self.fails_with: int | None = None  # an HTTP status for every request
        self.seen: list[str] = []  # methods, in order of arrival
        self.params: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []  # of each POST
        self.peers: set[Any] = set()  # addresses that POSTs came from: one for each connection
        self.ran: list[str] = []  # tools whose calls were taken
        self.forgets_calls = False  # each `tools/call` finds its session lost
        self.ends_before_resumption = (
            False  # no connection is accepted any more when the tool `resumed` ends its stream
        )
        self.cancelled: list[Any] = []  # ids that the client cancelled, or calls whose response it closed
        self.replies: list[dict[str, Any]] = []  # to our questions
        self.gate = asyncio.Event()  # tools `wait` and `stream` hold until it is open
        self.arrived = asyncio.Semaphore(0)  # released once for each tools/call that has come in
        self.hold_initialized: asyncio.Event | None = None  # `notifications/initialized` is taken only once it is set
        self.hold_lists: asyncio.Event | None = None  # `tools/list` is answered only once it is set
        self.hold_acknowledged: asyncio.Event | None = None  # a listen request is acknowledged only once it is set
        self.refuses_listen: str | None = None  # a URI: a listen request that names it gets an error
        self.leaves_out: str | None = None  # a URI: it is left out of what is acknowledged
        self.deaf_after_asking = False  # the tool `ask` never goes on once it has its answer
        self.streams: list[asyncio.Queue[dict[str, Any] | None]] = []  # open GET or listen streams; None ends one
        self.stream_opened = asyncio.Semaphore(0)
        self._sessions: dict[str, bool] = {}  # id -> initialized
        self._kept: dict[str, Any] = {}  # an answer that waits for its client to come back
        self._numbers = itertools.count(1)
        self._answers: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/mcp", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """As a process that ends: connections are cut, sessions forgotten. The port stays ours for `start`."""
        self._sessions.clear()
        for stream in self.streams:
            stream.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def forget_sessions(self) -> None:
        self._sessions.clear()

    def push(self, message: dict[str, Any]) -> None:
        """Send to every standing stream."""
        for stream in self.streams:
            stream.put_nowait({"jsonrpc": "2.0", **message})

    def expect_reply(self, number: str) -> asyncio.Future[dict[str, Any]]:
        """Our client's answer to the question `number`, which the test pushes."""
        self._answers[number] = reply = asyncio.get_running_loop().create_future()
        return reply

    def count(self, method: str) -> int:
        return self.seen.count(method)

    # ------------------------------------------------------------------ HTTP

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.fails_with is not None:
            return web.Response(status=self.fails_with, text="not today")
        if request.method == "DELETE":
            self.seen.append("DELETE")
            self._sessions.pop(request.headers.get("Mcp-Session-Id", ""), None)
            return web.Response()
        if request.method == "GET":
            return await self._get(request)
        if request.transport is not None:
            self.peers.add(request.transport.get_extra_info("peername"))
        message = await request.json()
        method = message.get("method", "reply")
        self.seen.append(method)
        self.headers.append(dict(request.headers))
        self.params.append(message.get("params") or {})
        if self.era == "modern":
            return await self._modern(request, message, method)
        return await self._legacy(request, message, method)

    async def _legacy(self, request: web.Request, message: dict[str, Any], method: str) -> web.StreamResponse:
        session_id = request.headers.get("Mcp-Session-Id")
        if method == "initialize":
            return web.Response(status=503) if self.refuses_initialize else self._open_session(message)
        if method == "tools/call" and self.forgets_calls:
            self._sessions.clear()
        if self.keeps_sessions and (session_id is None or session_id not in self._sessions):
            return self._lost(message)
        if method == "notifications/initialized":
            if self.hold_initialized is not None:
                await self.hold_initialized.wait()
            if session_id is not None:
                self._sessions[session_id] = True
            return web.Response(status=202)
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
            return web.Response(status=202)
        if method == "reply":
            self.replies.append(message)
            self._answers.pop(message["id"]).set_result(message)
            return web.Response(status=202)
        if session_id is not None and not self._sessions.get(session_id):
            return _error(message["id"], -32602, "Received request before initialization was complete", 200)
        return await self._answer(request, message, method)

    def _open_session(self, message: dict[str, Any]) -> web.Response:
        headers = {}
        if self.keeps_sessions:
            session_id = f"session-{next(self._numbers)}"
            self._sessions[session_id] = False
            headers["Mcp-Session-Id"] = session_id
        result = {"protocolVersion": LEGACY, "capabilities": self.capabilities, "serverInfo": {"name": "legacy"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    def _lost(self, message: dict[str, Any]) -> web.Response:
        text = "Session not found" if self.lost_session_status == 404 else "Bad Request: No valid session ID provided"
        return _error(self.lost_session_id, -32000, text, self.lost_session_status)

    async def _modern(self, request: web.Request, message: dict[str, Any], method: str) -> web.StreamResponse:
        number, params = message["id"], message["params"]
        meta = params.get("_meta", {})
        if method == "initialize":
            return _error(number, -32601, "Method not found", 404)
        field = NAME_BEARING_METHODS.get(method)
        name = params.get(field) if field is not None else None
        if (
            request.headers.get("MCP-Protocol-Version") != MODERN
            or request.headers.get("Mcp-Method") != method
            or decode_header_value(request.headers.get("Mcp-Name")) != name
            or meta.get(META + "protocolVersion") != MODERN
            or META + "clientCapabilities" not in meta
        ):
            return _error(number, -32020, "Header mismatch", 400)
        if method == "server/discover":
            result = {"supportedVersions": [MODERN], "capabilities": self.capabilities, "resultType": "complete"}
            result["_meta"] = {META + "serverInfo": {"name": "modern", "version": "1"}}
            return web.json_response({"jsonrpc": "2.0", "id": number, "result": result})
        if method == "subscriptions/listen":
            wanted = params["notifications"]
            if self.refuses_listen in wanted.get("resourceSubscriptions", ()):
                return _error(number, -32050, "I will not tell", 200)
            return await self._stand(request, number, wanted)
        return await self._answer(request, message, method)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self.seen.append("GET")
        if self.era == "modern" or not self.has_get_stream:
            return web.Response(status=405)
        if self.keeps_sessions and request.headers.get("Mcp-Session-Id") not in self._sessions:
            return self._lost({})
        if "Last-Event-ID" in request.headers:
            self.resumed_from.append(request.headers["Last-Event-ID"])
            response = await self._open_stream(request)
            await response.write(_event(self._kept))
            return response
        return await self._stand(request, None, None)

    async def _stand(self, request: web.Request, number: Any, wanted: Any) -> web.StreamResponse:
        stream: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        if wanted is not None:
            method = "notifications/subscriptions/acknowledged"
            uris = [uri for uri in wanted.get("resourceSubscriptions", ()) if uri != self.leaves_out]
            honoured = {**wanted, "resourceSubscriptions": uris}
            stream.put_nowait({"jsonrpc": "2.0", "method": method, "params": {"notifications": honoured}})
        response = await self._open_stream(request)
        if wanted is not None and self.hold_acknowledged is not None:
            await self.hold_acknowledged.wait()
        self.streams.append(stream)
        self.stream_opened.release()
        try:
            while message := await stream.get():
                await response.write(_event(message))
        finally:
            self.streams.remove(stream)
        return response

    async def _open_stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        return response

    # ------------------------------------------------------------------ MCP

    async def _answer(self, request: web.Request, message: dict[str, Any], method: str) -> web.StreamResponse:
        if method == "tools/list":
            if self.hold_lists is not None:
                await self.hold_lists.wait()
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": self.tools}})
        if method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        if method != "tools/call":
            return _error(message["id"], -32601, "Method not found", 404 if self.era == "modern" else 200)
        self.ran.append(message["params"]["name"])
        self.arrived.release()
        try:
            return await self._call(request, message)
        except asyncio.CancelledError:
            self.cancelled.append(message["params"]["name"])
            raise

    async def _call(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        params = message["params"]
        name, arguments = params["name"], params.get("arguments", {})
        if name == "refuse":
            return _error(message["id"], -32050, "I will not", 200)
        if name == "task":
            task = {"resultType": "task", "task": {"taskId": "t1", "status": "working"}}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": task})
        if name == "confirm":
            return await self._confirm(message)
        if name == "wait":
            await self.gate.wait()
        if name == "waiting_stream":
            response = await self._open_stream(request)
            await self.gate.wait()
            await response.write(_event(_result(message["id"], arguments)))
            return response
        if name == "resumed":
            return await self._resumed(request, _result(message["id"], arguments))
        if name in ("progress", "ask", "flood"):
            return await self._streamed(request, message, name, arguments)
        if self.answers == "json":
            body = web.json_response(_result(message["id"], arguments))
            if arguments.get("gzip"):
                body.enable_compression()
            return body
        response = await self._open_stream(request)
        await response.write(_event(_result(message["id"], arguments)))
        return response

    async def _resumed(self, request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        self._kept = answer
        response = await self._open_stream(request)
        await response.write(b"id: e1\nretry: 1\ndata:\n\n")
        if self.ends_before_resumption and self._runner is not None:
            response.force_close()
            for site in [*self._runner.sites]:
                await site.stop()
        return response

    async def _confirm(self, message: dict[str, Any]) -> web.Response:
        """The modern way to ask: the first answer is a question, the repeated call carries the reply."""
        params = message["params"]
        if "inputResponses" in params:
            said = {"said": params["inputResponses"]["sure"], "state": params["requestState"]}
            return web.json_response(_result(message["id"], said))
        question = {"method": "elicitation/create", "params": {"message": "sure?", "requestedSchema": {}}}
        result = {"resultType": "input_required", "inputRequests": {"sure": question}, "requestState": "s1"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _streamed(
        self, request: web.Request, message: dict[str, Any], name: str, arguments: dict[str, Any]
    ) -> web.StreamResponse:
        response = await self._open_stream(request)
        token = message["params"].get("_meta", {}).get("progressToken")
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token}}
        if name == "progress":
            for step in (1, 2, 3):
                progress["params"] = {"progressToken": token, "progress": step}
                await response.write(_event(progress))
        while name == "flood":
            await response.write(_event(progress) * 100)
        if name == "ask":
            arguments = await self._ask(response)
        await response.write(_event(_result(message["id"], arguments)))
        return response

    async def _ask(self, response: web.StreamResponse) -> dict[str, Any]:
        number = f"q{next(self._numbers)}"
        reply = self.expect_reply(number)
        params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        await response.write(_event({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}))
        answer = await reply
        if self.deaf_after_asking:
            await asyncio.Event().wait()
        return {"answer": answer.get("result") or answer.get("error")}


def _result(number: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    text = "x" * arguments["size"] if "size" in arguments else json.dumps(arguments)
    result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error(number: Any, code: int, text: str, status: int) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}, status=status)


def _event(message: dict[str, Any]) -> bytes:
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


@asynccontextmanager
async def serving(era: Literal["legacy", "modern"]) -> AsyncIterator[HttpMcp]:
    server = HttpMcp(era)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
