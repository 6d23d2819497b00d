"""Small servers in this process: they fit `ToolSource` by shape, and tests decide when and what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import GatewayConfig
from pointsman.core.kinds import Family
from pointsman.core.model import ServerState, ServerStatus
from pointsman.providers.base import SearchProvider
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.cloud.provider import CloudSearchProvider

SECRET = "ptm_secret-of-the-laptop"


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}


class SmallServer:
    """Answers its list in one page, unless a test gives it another way to answer."""

    def __init__(self, server_id: str, *tools: dict[str, Any], list_timeout_s: float = 5.0) -> None:
        self.id = server_id
        self.name = server_id
        self.status = ServerStatus("running", "", 0.0)
        self.generation = 0
        self.list_timeout_s = list_timeout_s
        self.tools: Sequence[dict[str, Any]] = tools
        self.ttl_ms: int | None = None
        self.asked = 0
        self.inside = asyncio.Event()  # set as soon as somebody asks
        self.may_answer = asyncio.Event()  # cleared: nobody gets an answer
        self.may_answer.set()
        self.hears = True  # a change of the list would be heard
        self.coming_up: asyncio.Event | None = None  # set when a first start is over
        self.back: asyncio.Event | None = None  # set when a restart is over
        self.session = object()  # replaced by a restart
        self.changed_generation = 0  # of the last change of its configuration
        self.fails: Callable[[], Exception] | None = None
        self.bundled = False  # a part of Pointsman, which `catalog_of` configures so

    def generation_of(self, kind: Family, /) -> int:
        return self.generation

    def announces_changes(self, kind: Family, /) -> bool:
        return self.hears

    async def first_start(self) -> None:
        if self.coming_up is not None:
            await self.coming_up.wait()

    @property
    def restarting(self) -> bool:
        return self.back is not None and not self.back.is_set()

    async def restarted(self) -> None:
        if self.back is not None:
            await self.back.wait()

    def is_current(self, generation: int, /) -> bool:
        return generation >= self.changed_generation

    def keeps_list_of(self, generation: int, /) -> bool:
        return self.restarting and generation >= 0

    async def list_page(self, method: str, cursor: str | None, /) -> dict[str, Any]:
        return await self.tools_page(cursor)

    async def tools_page(self, cursor: str | None) -> dict[str, Any]:
        self.asked += 1
        self.inside.set()
        answer: dict[str, Any] = {"tools": list(self.tools)}  # the state at the time of the question
        await self.may_answer.wait()
        if self.fails is not None:
            raise self.fails()
        return answer if self.ttl_ms is None else {**answer, "ttlMs": self.ttl_ms}

    def be(self, state: ServerState, reason: str = "") -> None:
        if state == "running":
            self.generation += 1
        self.session = object()
        self.status = ServerStatus(state, reason, 0.0)

    def change(self, *tools: dict[str, Any]) -> None:
        self.tools = tools
        self.generation += 1


class Clock:
    """A monotonic clock that a test winds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def config_of(servers: Mapping[str, Any], **more: Any) -> GatewayConfig:
    """A configuration whose servers are given by id, with a token that may use all of them."""
    token = {"sha256": sha256(SECRET.encode()).hexdigest(), "projects": ["*"], "servers": ["*"]}
    data = {
        "servers": {
            server_id: entry if entry and "bundled" in entry else {"command": "true", **(entry or {})}
            for server_id, entry in servers.items()
        },
        "tokens": {"laptop": token},
        **more,
    }
    return GatewayConfig.model_validate(data)


def catalog_of(
    *servers: SmallServer,
    config: GatewayConfig | None = None,
    cloud: SearchProvider | None = None,
    local: SearchProvider | None = None,
    **more: Any,
) -> ToolCatalogService:
    """With the local provider that goes by words alone and no search service, unless others are given."""
    providers: dict[Any, SearchProvider] = {
        "bm25": local or BM25SearchProvider(embeddings=False),
        "cloud": cloud or CloudSearchProvider(),
    }
    sources = {server.id: server for server in servers}
    bundled = {"bundled": "archive", "roots": {"app": "/srv/app"}}  # with all that its tools need
    entries = {server.id: bundled if server.bundled else None for server in servers}
    return ToolCatalogService(config or config_of(entries), sources, providers, **more)
