"""The front as the daemon serves it: Starlette routes, uvicorn, our protocol class, a free port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from pointsman.config.model import CurrentConfig, GatewayConfig, Limits, Listen
from pointsman.core.model import Caller
from pointsman.router.app import oauth_routes
from pointsman.router.front.asgi import Front
from pointsman.router.front.http.connections import Exempt, is_exempt
from pointsman.router.front.http.headers import HostRules
from pointsman.router.front.http.protocol import GuardedProtocol, guarded_protocol
from tests.router.front.raw_http import Answer, Connection, Json, initialize, request
from tests.router.front.small_gateway import SmallGateway

SERVER_INFO = {"name": "pointsman", "version": "0.test"}


@dataclass
class Served:
    port: int
    gateway: SmallGateway
    front: Front
    server: uvicorn.Server
    current: CurrentConfig = field(default_factory=lambda: CurrentConfig(GatewayConfig()))
    opened: list[Connection] = field(default_factory=list)  # closed at the end, where a test has not done it

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    @property
    def protocols(self) -> list[GuardedProtocol]:
        return [one for one in self.server.server_state.connections if isinstance(one, GuardedProtocol)]

    async def connect(self) -> Connection:
        connection = await Connection.open(self.port)
        self.opened.append(connection)
        return connection

    async def send(self, body: bytes | Json | list[Any] | None = None, **how: Any) -> Answer:
        """One request on a connection of its own."""
        connection = await self.connect()
        try:
            connection.send(request(self.port, body, **how))
            return await connection.answer()
        finally:
            await connection.close()

    async def open_session(
        self, capabilities: Json | None = None, version: str = "2025-11-25", **how: Any
    ) -> list[tuple[str, str]]:
        """The headers of a new legacy session."""
        answer = await self.send(initialize(version, capabilities), **how)
        assert answer.status == 200, answer
        return [("Mcp-Session-Id", answer.headers["mcp-session-id"])]

    async def start(self, body: Json | None, **how: Any) -> Connection:
        """A request whose answer is read later."""
        connection = await self.connect()
        connection.send(request(self.port, body, **how))
        return connection


@asynccontextmanager
async def listening(app: ASGIApp, listener: socket.socket, **config: Any) -> AsyncIterator[uvicorn.Server]:
    """uvicorn without its main loop, which ticks only every 0.1 s and waits as long at the end."""
    settings: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None, "access_log": False}
    server = uvicorn.Server(uvicorn.Config(app, **{**settings, **config}))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    try:
        yield server
    finally:
        for socket_server in server.servers:
            socket_server.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await end(server.server_state.tasks)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def free_port() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


async def two_tools(caller: Caller) -> str:
    return "Two tools."


@asynccontextmanager
async def serving(
    gateway: SmallGateway | None = None,
    *,
    limits: Limits | None = None,
    listen: Listen | None = None,
    read_s: float = 10.0,
    resume_s: float = 0.05,  # no test has to wait for clients that it knows will not come back
    exempt: Exempt = lambda host: is_exempt(host, ()),
    timeout_keep_alive: int = 5,
    **front_settings: Any,
) -> AsyncIterator[Served]:
    gateway = gateway or SmallGateway()
    listener = free_port()
    port = listener.getsockname()[1]
    hosts = HostRules.of(listen or Listen(), port)
    about: dict[str, Any] = {"server_info": SERVER_INFO, "instructions": two_tools}
    current = CurrentConfig(GatewayConfig(limits=limits or Limits()))
    front = Front(gateway, current, hosts, **about, resume_s=resume_s, **front_settings)
    front.other_paths = Starlette(routes=[*front.routes(), *oauth_routes()])
    protocol = guarded_protocol(
        lambda: current.config.limits, read_s, exempt=exempt, unread=front.unread, serve_post=front.serve_post
    )
    reaping = asyncio.create_task(front.run())
    try:
        async with listening(front, listener, http=protocol, timeout_keep_alive=timeout_keep_alive) as server:
            served = Served(port, gateway, front, server, current)
            try:
                yield served
            finally:
                for connection in served.opened:
                    await connection.close()
    finally:
        await end([reaping])
