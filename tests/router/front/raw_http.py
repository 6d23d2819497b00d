"""HTTP by hand, for requests that no client library would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
MODERN = "2026-07-28"
NAMESPACE = "io.modelcontextprotocol/"
LONG_S = 30.0  # against hanging


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[Json]:
        """Of an event stream, or the one of a JSON body."""
        if self.headers.get("content-type") != "text/event-stream":
            return [self.json] if self.body else []
        return [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: {")]

    @property
    def last(self) -> Json:
        return self.messages[-1]

    @property
    def code(self) -> int | None:
        """Of JSON-RPC."""
        code: int | None = self.last.get("error", {}).get("code") if self.messages else None
        return code

    @property
    def reason(self) -> str | None:
        reason: str | None = self.last["error"].get("data", {}).get("code")
        return reason

    @property
    def text(self) -> str:
        text: str = self.last["result"]["content"][0]["text"]
        return text


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._events: list[Json] = []
        self.last_event_id = ""  # of the newest event that was read from the line

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        async with asyncio.timeout(LONG_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([piece async for piece in self.chunks()])
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(head[0].split()[1]), headers, body)

    async def head(self) -> str:
        """Of an answer whose body is read piece by piece."""
        async with asyncio.timeout(LONG_S):
            return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def chunks(self) -> Any:
        while piece := await self.chunk():
            yield piece

    async def chunk(self) -> bytes:
        async with asyncio.timeout(LONG_S):
            size = int(await self.reader.readline(), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def closed_stream(self) -> None:
        """Reads comments until the stream ends as it should."""
        while await self.chunk():
            pass

    async def event(self) -> Json:
        """The next message of a stream; comments are skipped."""
        while not self._events:
            lines = (await self.chunk()).decode().splitlines()
            for line in lines:
                if line.startswith("id: "):
                    self.last_event_id = line[4:]
                elif line.startswith("data: {"):
                    self._events.append(json.loads(line[6:]))
        return self._events.pop(0)

    async def closed(self) -> bytes:
        """All that still comes until the other side closes."""
        async with asyncio.timeout(LONG_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def close(self) -> None:
        self.writer.transport.abort()

    def half_close(self) -> None:
        self.writer.write_eof()


def request(
    port: int,
    body: bytes | Json | list[Any] | None = None,
    *,
    verb: str = "POST",
    path: str = "/mcp",
    token: str | None = "secret-a",
    headers: Iterable[tuple[str, str]] = (),
    without: Iterable[str] = (),
) -> bytes:
    """The bytes of a request. `headers` are added to the usual ones, or take the place of those in `without`."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    usual = [("Host", f"127.0.0.1:{port}"), ("Accept", "application/json, text/event-stream")]
    if token is not None:
        usual.append(("Authorization", f"Bearer {token}"))
    if verb == "POST":
        usual += [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    skipped = {name.lower() for name in without}
    lines = [(k, v) for k, v in usual if k.lower() not in skipped] + list(headers)
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data


def call(tool: str, arguments: Json | None = None, *, client_id: Any = 1, meta: Json | None = None) -> Json:
    params: Json = {"name": tool, "arguments": arguments or {}}
    if meta is not None:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": client_id, "method": "tools/call", "params": params}


def initialize(version: str = "2025-11-25", capabilities: Json | None = None, meta: Json | None = None) -> Json:
    params: Json = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    if meta is not None:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def modern(
    method: str,
    params: Json | None = None,
    *,
    client_id: Any = 1,
    capabilities: Json | None = None,
    **meta: Any,
) -> tuple[Json, list[tuple[str, str]]]:
    """A modern request, and the headers that mirror it."""
    envelope = {
        NAMESPACE + "protocolVersion": MODERN,
        NAMESPACE + "clientCapabilities": capabilities or {},
        NAMESPACE + "clientInfo": {"name": "raw", "version": "1"},
        **meta,
    }
    body = {"jsonrpc": "2.0", "id": client_id, "method": method, "params": {**(params or {}), "_meta": envelope}}
    headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)]
    name = (params or {}).get("name") or (params or {}).get("uri")
    if isinstance(name, str):
        headers.append(("Mcp-Name", name))
    return body, headers


def modern_call(tool: str, arguments: Json | None = None, **more: Any) -> tuple[Json, list[tuple[str, str]]]:
    return modern("tools/call", {"name": tool, "arguments": arguments or {}}, **more)
