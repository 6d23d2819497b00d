"""`python -m bench.floor URL`: the least that a gateway on the same front library can do, as a floor for ours.

One process offers three tools by their keys: `self:echo`, answered by the front alone; `http0:echo`, forwarded to the
server at URL; and `stdio:echo`, forwarded to a child process. It reads and writes JSON, knows one token, keeps
sessions, and has time limits for nothing: no rights, no validation, no audit, no supervision, no limits.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import msgspec
import uvicorn

from bench.load.requests import META, http_post
from bench.servers.answers import INFO, LEGACY, MODERN, decode, encode

TOKEN = b"Bearer floor"
Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Call = Callable[[Message], Awaitable[Message]]


class Answer(msgspec.Struct):
    id: int
    result: dict[str, Any]


decode_answer = msgspec.json.Decoder(Answer).decode


class StdioServer:
    """A child process; many calls under way, matched by id."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._numbers = count(1)

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.servers.stdio"), stdin=pipe, stdout=pipe, limit=64 << 20
        )
        self._reading = asyncio.create_task(self._read())

    async def call(self, params: Message) -> Message:
        number = next(self._numbers)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        assert self._child.stdin is not None
        self._child.stdin.write(_request(number, params) + b"\n")
        return await future

    async def _read(self) -> None:
        assert self._child.stdout is not None
        async for line in self._child.stdout:
            answer = decode_answer(line)
            self._waiting.pop(answer.id).set_result(answer.result)


class HttpServer:
    """Keep-alive connections to one server, each with one request under way."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        fixed = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}
        self._head = http_post(url, b"", fixed).replace(b"content-length: 0\r\n", b"").removesuffix(b"\r\n")
        self._idle: list[_Connection] = []
        self._numbers = count(1)

    async def call(self, params: Message) -> Message:
        body = _request(next(self._numbers), params)
        if self._idle:
            connection = self._idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, self._host, self._port)
        answer = await connection.exchange(b"%bcontent-length: %d\r\n\r\n%b" % (self._head, len(body), body))
        self._idle.append(connection)
        return decode_answer(answer).result


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def exchange(self, request: bytes) -> asyncio.Future[bytes]:
        self._body: list[bytes] = []
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answered

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._answered.set_result(b"".join(self._body))


async def echo(params: Message) -> Message:
    text = params["arguments"]["text"]
    return {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}


class Front:
    """POST /mcp in both eras."""

    def __init__(self, tools: dict[str, Call], start: Callable[[], Awaitable[None]]) -> None:
        self._servers = tools
        self._start = start
        self._sessions: set[bytes] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        headers = dict(scope["headers"])
        body = b""
        more = True
        while more:
            part = await receive()
            body += part["body"]
            more = part["more_body"]
        status, answer, extra = await self._answer(headers, decode(body))
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer)), *extra]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._start()
        gc.collect()
        gc.freeze()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(
        self, headers: dict[bytes, bytes], message: Message
    ) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        if headers.get(b"authorization") != TOKEN:
            return 401, b"", []
        if "id" not in message:
            return 202, b"", []
        if message["method"] == "initialize":
            session = secrets.token_hex(16).encode()
            self._sessions.add(session)
            result = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": INFO}
            return 200, _result(message, result), [(b"mcp-session-id", session)]
        modern = headers.get(b"mcp-protocol-version") == MODERN.encode()
        if not modern and headers.get(b"mcp-session-id") not in self._sessions:
            return 404, b"", []
        asked = message["params"]["arguments"]
        server, _, tool = asked["toolKey"].partition(":")
        result = await self._servers[server]({"name": tool, "arguments": asked["arguments"]})
        if modern:
            result["_meta"] = {"io.modelcontextprotocol/serverInfo": INFO}
        else:
            result.pop("resultType", None)
        return 200, _result(message, result), []


def _request(number: int, params: Message) -> bytes:
    return encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {**params, "_meta": META}})


def _result(message: Message, result: Message) -> bytes:
    return encode({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def main(url: str) -> None:
    child = StdioServer()
    front = Front({"self": echo, "http0": HttpServer(url).call, "stdio": child.call}, child.start)
    config = uvicorn.Config(
        front,
        port=0,
        log_level="error",
        http="httptools",
        loop="uvloop",
        ws="none",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent process closes its end
    server.should_exit = True
    await serving


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1]))
