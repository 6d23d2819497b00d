"""What the tests of the transports share: a client to answer questions, and the small server as a child."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pointsman.config.model import Limits
from pointsman.core import wire
from pointsman.core.model import Caller, Json
from pointsman.core.seams import Client, Era, FrontRequest
from pointsman.router.downstream.connection import Call
from pointsman.router.downstream.stdio.child import Command, ProcessStarter, StopGrace, SystemProcesses
from pointsman.router.downstream.stdio.connection import StdioConnection, connect_stdio
from pointsman.router.downstream.talk.handshake import WantedEra
from pointsman.router.serving.in_flight import AnswerMemory

SERVER = Path(__file__).parents[2] / "servers" / "stdio_server.py"
SHORT_GRACE = StopGrace(stdin_s=0.2, term_s=0.2)


def command(*switches: str, **env: str) -> Command:
    return Command((sys.executable, "-I", "-S", str(SERVER), *switches), env)


class Person:
    """A client's end: notes what it is told and answers what it is asked."""

    def __init__(self, answer: Callable[[str, Json], Awaitable[Json]] | None = None) -> None:
        self.told: list[tuple[str, Json]] = []
        self.asked: list[tuple[str, Json]] = []
        self.was_asked = asyncio.Event()
        self._answer = answer

    def reachable(self) -> bool:
        return True

    def notify(self, method: str, params: Json) -> None:
        self.told.append((method, params))

    async def ask(self, method: str, params: Json) -> Json:
        self.asked.append((method, params))
        self.was_asked.set()
        return await self._answer(method, params) if self._answer is not None else {"action": "accept"}


def tool_call(
    name: str,
    arguments: Json | None = None,
    *,
    person: Person | None = None,
    era: Era = "legacy",
    progress_token: str | int | None = None,
    log_level: str | None = None,
    meta: Json | None = None,
) -> Call:
    params: Json = {"name": name, "arguments": arguments or {}}
    if person is None:
        return Call("tools/call", params)
    client = Client("test", era, "any", {}, progress_token, log_level)
    front = FrontRequest("r1", "tools/call", {**params, **({"_meta": meta} if meta else {})}, Caller("t", None), client)
    return Call("tools/call", params, front, person)


Heard = list[tuple[str, Json]]


@asynccontextmanager
async def stdio(
    *switches: str,
    era: WantedEra = "legacy",
    limits: Limits | None = None,
    heard: Heard | None = None,
    starter: ProcessStarter | None = None,
    probe_s: float = 5,
    memory: AnswerMemory | None = None,
    **env: str,
) -> AsyncIterator[StdioConnection]:
    heard = [] if heard is None else heard
    connection = await connect_stdio(
        command(*switches, **env),
        starter=starter or SystemProcesses(None, SHORT_GRACE),
        era=era,
        limits=limits or Limits(),
        on_notification=lambda method, params: heard.append((method, params)),
        probe_s=probe_s,
        memory=memory,
    )
    try:
        yield connection
    finally:
        await connection.close()


def text(result: Json) -> str:
    """The text as a client gets it: large content is not decoded on its way."""
    found: str = wire.decode(wire.encode(result))["content"][0]["text"]
    return found
