"""People with SDK clients of either era in front of a gateway, who answer what they are asked in their own names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
from mcp import Client, types
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.client import SESSION_S, Assistant, Mode, until_all_run
from tests.gateway_process import GatewayProcess


@dataclass
class Person:
    name: str
    asked: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    silent: bool = False  # never answers

    async def elicited(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        if self.silent:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": f"{self.name}:{params.message}"})

    async def sampled(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        (block,) = params.messages[0].content_as_list
        assert isinstance(block, types.TextContent)
        self.asked.append(block.text)
        content = types.TextContent(type="text", text=f"{self.name}:{block.text}")
        return types.CreateMessageResult(role="assistant", content=content, model="person")

    async def hears(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append(str(params.data))

    async def rooted(self, context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": f"file:///{self.name}"})])


@asynccontextmanager
async def person(
    gateway: GatewayProcess,
    mode: Mode,
    name: str = "ada",
    *,
    able: bool = True,
    token: str | None = None,
    who: Person | None = None,
) -> AsyncIterator[tuple[Person, Assistant]]:
    """Somebody who can be asked everything, or nothing."""
    who = who or Person(name)
    headers = {"Authorization": f"Bearer {token or gateway.token}"}
    async with (
        asyncio.timeout(SESSION_S),
        httpx2.AsyncClient(headers=headers, timeout=SESSION_S) as http,
        Client(
            streamable_http_client(gateway.url, http_client=http),
            mode=mode,
            elicitation_callback=who.elicited if able else None,
            sampling_callback=who.sampled if able else None,
            list_roots_callback=who.rooted if able else None,
            logging_callback=who.hears,
            log_level="warning",
        ) as client,
    ):
        await until_all_run(http, gateway)
        yield who, Assistant(client)
