"""The listening socket and its HTTP server."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

KEEP_ALIVE_S = 75  # for an idle connection


class ListenError(Exception):
    """Could not bind the address. `str(error)` is shown to the operator."""


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket. `shared`: with other workers, between which the kernel divides the connections.

    Raises:
        ListenError
    """
    listener = _bound(host, port, shared=shared)
    try:
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise ListenError(_reason(host, port, error)) from error
    listener.setblocking(False)
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that holds an address for workers, and does not listen. Port 0 becomes a free one.

    Raises:
        ListenError: also if another program listens there and would share it: its listener is tried for first.
    """
    with bind(host, port) as alone:
        port = alone.getsockname()[1]
    return _bound(host, port, shared=True)


def url_of(listener: socket.socket) -> str:
    """Return the URL for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{host}:{port}"


class HttpServer(uvicorn.Server):
    """uvicorn with the settings of our daemons, without its signal handling; calls `opened` when it listens."""

    def __init__(
        self,
        app: ASGIApp,
        protocol: type[asyncio.Protocol],
        opened: Callable[[], None],
        *,
        graceful_s: int,
        unix_listener: socket.socket | None = None,
    ) -> None:
        """`graceful_s`: for requests and connections to end at shutdown. `unix_listener`: a further socket."""
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=graceful_s,
            )
        )
        self._opened = opened
        self._unix_listener = unix_listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._unix_listener is not None:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_unix_server(self._connection, sock=self._unix_listener))
        if self.started:
            self._opened()

    def _connection(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        made: asyncio.Protocol = protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    """Raises ListenError."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ListenError(f"Could not listen on `{host}`: {error.strerror or error}. Set `listen.host`.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ListenError(_reason(host, port, error)) from error
    return bound


_CHOICE = "start with --port N, or with the variable POINTSMAN_PORT, as in `POINTSMAN_PORT=3290 make run`"


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is taken by another program. "
            f"Stop that program, or choose another port: {_CHOICE}. 0 picks a free one."
        )
    if error.errno == errno.EACCES:
        return f"No permission to use port {port} on {host}. Choose one above 1023: {_CHOICE}."
    return f"Could not listen on {host}:{port}: {error.strerror or error}. Set `listen` in the configuration."
