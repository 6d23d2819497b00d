"""`python -m bench.servers.http SERVERS TOOLS TTL_MS`: trivial MCP servers in one process, at /0/mcp, /1/mcp, ..."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

from bench.servers.answers import Answers, decode

SESSION = b"mcp-session-id: bench\r\n"


class HttpServer(asyncio.Protocol):
    """As much HTTP/1.1 as a well-behaved client needs, in one write for an answer."""

    def __init__(self, servers: list[Answers]) -> None:
        self._servers = servers
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (request := self._next_request()) is not None:
            self._transport.write(self._respond(*request))

    def _next_request(self) -> tuple[bytes, bytes, bytes] | None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        length = _content_length(head)
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        verb, path, _ = head.split(b" ", 2)
        return verb, path, rest[:length]

    def _respond(self, verb: bytes, path: bytes, body: bytes) -> bytes:
        if verb != b"POST":
            return b"HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 0\r\n\r\n"
        message = decode(body)
        answer = self._servers[int(path.split(b"/")[1])].answer(message)
        if answer is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        session = SESSION if message["method"] == "initialize" else b""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
        return head % (session, len(answer)) + answer


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line[:15].lower() == b"content-length:":
            return int(line[15:])
    return 0


async def main(count: int, tools: int, ttl_ms: int) -> None:
    servers = [Answers(server, tools, ttl_ms) for server in range(count)]
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpServer(servers), "127.0.0.1", 0, backlog=512)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent process closes its end


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
