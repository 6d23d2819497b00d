"""The front as the daemon serves it: Starlette routes, uvicorn, our protocol class, a free port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from pointsman.config.model import Limits, Listen
from pointsman.router.front.asgi import Front
from pointsman.router.front.checks import HostRules
from pointsman.router.front.oauth_probe import oauth_routes
from pointsman.router.front.protocol import guarded_protocol
from tests.router.front.raw_http import Answer, Connection, Json, initialize, request
from tests.router.front.small_gateway import SmallGateway

SERVER_INFO = {"name": "pointsman", "version": "0.test"}


@dataclass
class Served:
    port: int
    gateway: SmallGateway
    front: Front
    server: uvicorn.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    async def connect(self) -> Connection:
        return await Connection.open(self.port)

    async def send(self, body: bytes | Json | list[Any] | None = None, **how: Any) -> Answer:
        """One request on a connection of its own."""
        connection = await self.connect()
        try:
            connection.send(request(self.port, body, **how))
            return await connection.answer()
        finally:
            await connection.close()

    async def open_session(self, capabilities: Json | None = None, **how: Any) -> list[tuple[str, str]]:
        """The headers of a new legacy session."""
        answer = await self.send(initialize(capabilities=capabilities), **how)
        assert answer.status == 200, answer
        return [("Mcp-Session-Id", answer.headers["mcp-session-id"])]

    async def start(self, body: Json, **how: Any) -> Connection:
        """A request whose answer is read later."""
        connection = await self.connect()
        connection.send(request(self.port, body, **how))
        return connection


class Announced(uvicorn.Server):
    """uvicorn that says when it listens, and leaves the signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(app: ASGIApp, listener: socket.socket, **config: Any) -> AsyncIterator[Announced]:
    settings: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None, "access_log": False}
    server = Announced(uvicorn.Config(app, **{**settings, **config}))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await server.listening.wait()
    try:
        yield server
    finally:
        server.should_exit = server.force_exit = True
        await task


def free_port() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


@asynccontextmanager
async def serving(
    gateway: SmallGateway | None = None,
    *,
    limits: Limits | None = None,
    listen: Listen | None = None,
    read_s: float = 10.0,
    **front_settings: Any,
) -> AsyncIterator[Served]:
    gateway = gateway or SmallGateway()
    listener = free_port()
    port = listener.getsockname()[1]
    hosts = HostRules.of(listen or Listen(), port)
    front = Front(
        gateway, limits or Limits(), hosts, server_info=SERVER_INFO, instructions="Two tools.", **front_settings
    )
    app = Starlette(routes=[Route("/mcp", front), Route("/projects/{id}/mcp", front), *oauth_routes()])
    protocol = guarded_protocol(lambda: front.limits, read_s)
    reaping = asyncio.create_task(front.run())
    async with listening(app, listener, http=protocol) as server:
        yield Served(port, gateway, front, server)
    reaping.cancel()
