"""Clients of both eras that send a mix of requests, each with an id of its own, and note how it ended."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import httpx2

from bench.soak.reconcile import REFUSED, Sent, Status
from tests.gateway_process import GatewayProcess
from tests.router.raw_client import Era, Speaker, speaker

SERVERS = ("legacy", "modern", "crashing", "churning", "visitor")
REQUESTS_OF_A_CLIENT = 150  # then a new one takes its place; every other legacy session is abandoned, not closed
WAIT_S = 0.4  # of a call that is abandoned
PATIENCE_S = 0.1

Ended = tuple[Status, str]


class Journal:
    """All that clients sent."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.sent: list[Sent] = []

    def new_id(self) -> str:
        return f"id{next(self._numbers):08d}"

    def note(self, request_id: str, method: str, ended: Ended, *, logged: bool = True) -> None:
        self.sent.append(Sent(request_id, method, *ended, logged=logged))

    def summary(self) -> str:
        counts = Counter((one.status, one.code) for one in self.sent)
        return ", ".join(f"{total:,} {' '.join(ended).strip()}" for ended, total in counts.most_common())


class Client:
    """One client after another of one era, each for a number of requests."""

    def __init__(self, gateway: GatewayProcess, era: Era, journal: Journal, chance: random.Random) -> None:
        self._gateway = gateway
        self._era: Era = era
        self._journal = journal
        self._chance = chance
        self._stack = AsyncExitStack()
        self._speaker: Speaker | None = None
        self._requests = 0
        self._clients = 0
        self._kinds: list[tuple[Callable[[Speaker], Awaitable[None]], int]] = [
            (self._call, 44),
            (self._echo, 6),
            (self._discover, 14),
            (self._read, 14),
            (self._prompt, 6),
            (self._complete, 5),
            (self._leave, 4),
            (self._call_wrongly, 3),
        ]
        if era == "legacy":
            self._kinds.append((self._subscribe, 4))

    async def send_one(self) -> None:
        try:
            one = await self._present()
        except AssertionError:  # no new session now: a refusal as good as any other
            self._journal.note(self._journal.new_id(), "initialize", ("refused", "initialize"))
            return
        [send] = self._chance.choices([kind for kind, _ in self._kinds], [weight for _, weight in self._kinds])
        await send(one)

    async def close(self) -> None:
        await self._stack.aclose()

    async def _present(self) -> Speaker:
        self._requests += 1
        if self._speaker is None or self._requests % REQUESTS_OF_A_CLIENT == 0:
            if self._speaker is not None and self._era == "legacy" and self._clients % 2:
                await self._speaker.http.delete(self._speaker.url, headers=self._speaker.headers)
            self._speaker = None
            await self._stack.aclose()
            self._stack = AsyncExitStack()
            self._speaker = await self._stack.enter_async_context(speaker(self._gateway, self._era))
            self._clients += 1
        return self._speaker

    def _server(self) -> str:
        return self._chance.choice(SERVERS)

    async def _execute(self, one: Speaker, arguments: dict[str, Any]) -> Ended:
        key = {"toolKey": f"{self._server()}:note", "arguments": arguments}
        return await ended(one, "tools/call", {"name": "tool_execute", "arguments": key})

    async def _call(self, one: Speaker) -> None:
        number = self._journal.new_id()
        self._journal.note(number, "tools/call", await self._execute(one, {"id": number}))

    async def _echo(self, one: Speaker) -> None:
        """Over HTTP, at a server that keeps no log."""
        number = self._journal.new_id()
        key = {"toolKey": "http:echo", "arguments": {"text": number}}
        params = {"name": "tool_execute", "arguments": key}
        self._journal.note(number, "tools/call", await ended(one, "tools/call", params), logged=False)

    async def _call_wrongly(self, one: Speaker) -> None:
        number = self._journal.new_id()
        self._journal.note(number, "tools/call", await self._execute(one, {"name": number}))

    async def _discover(self, one: Speaker) -> None:
        number = self._journal.new_id()
        query = {"name": "tool_discovery", "arguments": {"query": [f"write a note {number}"]}}
        self._journal.note(number, "tools/call", await ended(one, "tools/call", query), logged=False)

    async def _read(self, one: Speaker) -> None:
        number = self._journal.new_id()
        uri = f"pointsman+{self._server()}+soak://item/{number}"
        self._journal.note(number, "resources/read", await ended(one, "resources/read", {"uri": uri}))

    async def _prompt(self, one: Speaker) -> None:
        number = self._journal.new_id()
        params = {"name": f"{self._server()}__remember", "arguments": {"id": number}}
        self._journal.note(number, "prompts/get", await ended(one, "prompts/get", params))

    async def _complete(self, one: Speaker) -> None:
        number = self._journal.new_id()
        ref = {"type": "ref/prompt", "name": f"{self._server()}__remember"}
        params = {"ref": ref, "argument": {"name": "id", "value": number}}
        self._journal.note(number, "completion/complete", await ended(one, "completion/complete", params))

    async def _subscribe(self, one: Speaker) -> None:
        number = self._journal.new_id()
        uri = {"uri": f"pointsman+{self._chance.choice(SERVERS[:2])}+soak://item/{number}"}
        subscribed = await ended(one, "resources/subscribe", uri)
        self._journal.note(number, "resources/subscribe", subscribed)
        if subscribed[0] == "ok":
            self._journal.note(number, "resources/unsubscribe", await ended(one, "resources/unsubscribe", uri))

    async def _leave(self, one: Speaker) -> None:
        number = self._journal.new_id()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._execute(one, {"id": number, "wait_s": WAIT_S}))
            await asyncio.wait([waiting], timeout=PATIENCE_S)
            waiting.cancel()
        known = not waiting.cancelled()
        self._journal.note(number, "tools/call", waiting.result() if known else ("left", ""))


async def ended(one: Speaker, method: str, params: dict[str, Any]) -> Ended:
    try:
        message = await one.message(method, params)
    except AssertionError as error:  # an answer by HTTP status
        status = str(error)[:3]
        return ("refused", status) if status in ("429", "503") else ("error", status)
    except httpx2.HTTPError as error:
        return "error", type(error).__name__
    if "error" in message:
        data = message["error"].get("data")
        return _failed(str(data["code"] if isinstance(data, dict) and "code" in data else message["error"]["code"]))
    if not message["result"].get("isError"):
        return "ok", ""
    try:
        return _failed(message["result"]["structuredContent"]["error"]["code"])
    except (KeyError, TypeError):
        return "error", f"isError without a code: {json.dumps(message)[:200]}"


def _failed(code: str) -> Ended:
    return ("refused" if code == REFUSED else "error"), code
