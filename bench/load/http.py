"""Load over HTTP: raw keep-alive connections, each with one request under way at a time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from typing import cast
from urllib.parse import urlsplit

from bench.load.report import Spec, Tally
from bench.load.requests import (
    FIRST_ID,
    Template,
    call_body,
    http_call,
    http_post,
    initialize_body,
    initialized_body,
    template,
)

LENGTH = re.compile(rb"(?im)^content-length: *(\d+)")
CHUNKED = re.compile(rb"(?im)^transfer-encoding: *chunked")
LAST_CHUNK = b"0\r\n\r\n"
SESSION = re.compile(rb"(?im)^mcp-session-id: *([^\r\n]+)")


class HttpConnection(asyncio.Protocol):
    """Passes each complete answer, head and body, to `on_answer`; a chunked body with the lengths in it."""

    def __init__(self) -> None:
        self.on_answer: Callable[[bytes, bytes], None] = lambda head, body: None
        self._head = b""  # of an answer whose body is not complete
        self._body: list[bytes] = []
        self._missing = 0  # bytes of the body; -1 if it is chunked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from it

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            head, found, data = (self._head + data).partition(b"\r\n\r\n")
            if not found:
                self._head = head
                return
            self._head = head
            self._missing = _body_length(head)
        if self._missing < 0:
            complete = data.endswith(LAST_CHUNK)
        else:
            self._missing -= len(data)
            complete = not self._missing
        self._body.append(data)
        if complete:
            head, body = self._head, b"".join(self._body)
            self._head, self._body, self._missing = b"", [], 0
            self.on_answer(head, body)

    async def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        answered: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self.on_answer = lambda head, body: answered.set_result((head, body))
        self.transport.write(request)
        return await answered


class HttpLoad:
    """Every connection has its own session, in the legacy era."""

    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._tally = tally
        self._connections: list[HttpConnection] = []
        self._numbers = count(FIRST_ID)
        self._running = True

    async def start(self) -> None:
        for _ in range(self._spec.connections):
            self._connections.append(await open_connection(self._spec.target))
        for connection in self._connections:
            session = None
            if self._spec.era == "legacy":
                session = await open_session(connection, self._spec.target, self._spec.headers)
            self._keep_calling(connection, cycle(self._templates(session)))

    async def stop(self) -> None:
        self._running = False
        for connection in self._connections:
            connection.transport.close()

    def _templates(self, session: str | None) -> list[Template]:
        spec = self._spec
        bodies = [call_body(spec.era, spec.tool, arguments) for arguments in spec.arguments]
        return [template(http_call(spec.target, spec.era, spec.tool, body, spec.headers, session)) for body in bodies]

    def _keep_calling(self, connection: HttpConnection, templates: Iterator[Template]) -> None:
        sent_at = 0.0

        def send() -> None:
            nonlocal sent_at
            request = next(templates).numbered(next(self._numbers))
            sent_at = time.perf_counter()
            connection.transport.write(request)

        def on_answer(head: bytes, body: bytes) -> None:
            self._tally.add(sent_at, body if head[9:12] == b"200" else head)
            if self._running:
                send()

        connection.on_answer = on_answer
        send()


def _body_length(head: bytes) -> int:
    length = LENGTH.search(head)
    if length is not None:
        return int(length[1])
    if CHUNKED.search(head) is None:
        raise SystemExit(f"an answer of unknown length:\n{head.decode(errors='replace')}")
    return -1


async def open_connection(url: str) -> HttpConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    _, connection = await asyncio.get_running_loop().create_connection(HttpConnection, parts.hostname, parts.port)
    return connection


async def open_session(connection: HttpConnection, url: str, headers: dict[str, str]) -> str | None:
    """The session's id; None from a server that keeps no sessions."""
    head, body = await connection.exchange(http_post(url, initialize_body(), headers))
    if head[9:12] != b"200":
        raise SystemExit(f"no session: {head.decode(errors='replace')}\n{body[:500].decode(errors='replace')}")
    found = SESSION.search(head)
    session = found[1].decode() if found else None
    identity = headers | ({"mcp-session-id": session} if session else {})
    await connection.exchange(http_post(url, initialized_body(), identity))
    return session
