"""What tests of downstream connections need on our side: a client's request, its back channel, a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.model import Caller, Json
from pointsman.core.seams import Client, Era, FrontRequest
from pointsman.router.downstream.connection import Call, Connection
from pointsman.router.downstream.http.connect import connect_http
from pointsman.router.downstream.talk.handshake import WantedEra

PATIENCE_S = 30.0  # against hanging for ever; never a measure


class Back:
    """A client that hears everything and answers what `answer` says."""

    def __init__(self, answer: Callable[[str, Json], Awaitable[Json]] | None = None) -> None:
        self.told: list[tuple[str, Json]] = []
        self.asked: list[tuple[str, Json]] = []
        self._answer = answer

    def reachable(self) -> bool:
        return True

    def notify(self, method: str, params: Json) -> None:
        self.told.append((method, params))

    async def ask(self, method: str, params: Json) -> Json:
        self.asked.append((method, params))
        return await self._answer(method, params) if self._answer is not None else {"action": "accept", "content": {}}


def front_request(
    *,
    era: Era = "legacy",
    progress_token: str | int | None = None,
    meta: Json | None = None,
    capabilities: Json | None = None,
    log_level: str | None = None,
) -> FrontRequest:
    able = {"elicitation": {}} if capabilities is None else capabilities
    client = Client("test", era, "2025-11-25", able, progress_token, log_level)
    return FrontRequest("r1", "tools/call", {"_meta": meta or {}}, Caller("t", None), client)


def call_of(name: str, back: Back | None = None, request: FrontRequest | None = None, **arguments: Any) -> Call:
    return Call("tools/call", {"name": name, "arguments": arguments}, request or front_request(), back or Back())


def text_of(result: Json) -> str:
    """The text as a client gets it: large content is not decoded on its way."""
    text = wire.decode(wire.encode(result))["content"][0]["text"]
    assert isinstance(text, str)
    return text


class Notices:
    def __init__(self) -> None:
        self.methods: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, method: str, params: Json) -> None:
        self.methods.append(method)
        self._news.set()

    async def wait_for(self, method: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while method not in self.methods:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def connected(
    url: str,
    era: WantedEra = "auto",
    notices: Notices | None = None,
    limits: Limits | None = None,
    headers: dict[str, str] | None = None,
) -> AsyncIterator[Connection]:
    async with asyncio.timeout(PATIENCE_S):
        connection = await connect_http(url, headers or {}, era, 5.0, limits or Limits(), notices or Notices())
        try:
            yield connection
        finally:
            await connection.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that will come true by itself, without a guess at how long that takes."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
