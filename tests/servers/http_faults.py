"""An HTTP server that does to its clients, byte by byte, what a script says. For answers that no library would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Misbehave = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]
"""Gets the request's JSON and writes what it likes. The connection is closed after it."""


class HttpFaults:
    """Answers `server/discover` like a modern server without tools; `misbehave` has all other requests."""

    def __init__(self, misbehave: Misbehave) -> None:
        self._misbehave = misbehave
        self.requests = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                    length = int(head.split("content-length:")[1].split("\r\n")[0])
                    request = json.loads(await reader.readexactly(length))
                    if request["method"] != "server/discover":
                        self.requests += 1
                        await self._misbehave(request, writer)
                        break
                    result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
                    writer.write(
                        json_answer({"jsonrpc": "2.0", "id": request["id"], "result": result}, kept="keep-alive")
                    )
        finally:
            writer.close()


def json_answer(message: Any, status: str = "200 OK", kept: str = "close") -> bytes:
    body = json.dumps(message).encode()
    head = f"HTTP/1.1 {status}\r\nConnection: {kept}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def misbehaving(misbehave: Misbehave) -> AsyncIterator[HttpFaults]:
    faults = HttpFaults(misbehave)
    server = await asyncio.start_server(faults.serve, "127.0.0.1", 0)
    faults.port = server.sockets[0].getsockname()[1]
    try:
        yield faults
    finally:
        server.close()
