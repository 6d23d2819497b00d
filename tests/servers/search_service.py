"""A search service that does to its clients, byte by byte, what a test says, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pointsman.config.model import CloudSearch

TOKEN = "the-gateways-own-credential"


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes
    connection: int

    @property
    def question(self) -> dict[str, Any]:
        packed = self.headers.get("content-encoding") == "gzip"
        question: dict[str, Any] = json.loads(gzip.decompress(self.raw) if packed else self.raw)
        return question


Behave = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]
"""Writes what it likes. The connection stays open after it, unless it closes it."""


class SearchService:
    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.asked: list[Asked] = []
        self.came = asyncio.Condition()
        self.url = ""
        self.connections_open = 0
        self._connections = 0

    def settings(self, timeout_s: float = 30) -> CloudSearch:
        return CloudSearch.model_validate({"url": self.url, "token": TOKEN, "timeout_s": timeout_s})

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(60), self.came:
            await self.came.wait_for(lambda: len(self.asked) >= times)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        self.connections_open += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    first, *lines = head.strip().split("\r\n")
                    fields = [line.partition(":") for line in lines]
                    headers = {name.lower(): value.strip() for name, _, value in fields}
                    body = await reader.readexactly(int(headers["content-length"]))
                    asked = Asked(first.split()[1], headers, body, number)
                    async with self.came:
                        self.asked.append(asked)
                        self.came.notify_all()
                    await self.behave(asked, writer)
                    await writer.drain()
        finally:
            self.connections_open -= 1
            writer.close()


def http(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *more]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def answer(*results: Any, **more: Any) -> bytes:
    """A proper one; a pair stands for a key and its relevance."""
    listed = [{"toolKey": each[0], "relevance": each[1]} if isinstance(each, tuple) else each for each in results]
    return http(json.dumps({"apiVersion": "1", "results": listed, **more}).encode())


def sends(data: bytes, *, then_closes: bool = False) -> Behave:
    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if then_closes:
            await writer.drain()
            writer.close()

    return behave


async def names_the_first_tool(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(answer((asked.question["tools"][0]["toolKey"], 0.9)))


async def says_nothing(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def never_ends(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The first bytes of a body, and then one more from time to time."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


@asynccontextmanager
async def search_service(behave: Behave) -> AsyncIterator[SearchService]:
    service = SearchService(behave)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(service.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def nobody_listens() -> AsyncIterator[str]:
    """An address that refuses connections for as long as the block lasts."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
