"""The page's place in the gateway: decides whether there is a page for a request, and builds it at the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from pointsman.router.front.http.headers import Head, HostRules, checked_head
from pointsman.router.front.http.responses import HttpError
from pointsman.router.owner.parts import Parts

if TYPE_CHECKING:  # imported at the first request: templates and routing take 60 ms and 8 MB
    from pointsman.router.auth.server.server import AuthorizationServer
    from pointsman.router.page.app import PageApp
    from pointsman.router.page.connect import ConnectApp
    from pointsman.router.page.consent import ConsentApp

PATHS = ("/", "/page", "/page/{rest:path}")
CONSENT_PATHS = ("/oauth/authorize", "/oauth/sign-in", "/oauth/static/{name}")
CONNECT_PATHS = ("/oauth/connect/{link}", "/oauth/callback", "/oauth/connect-static/{name}")
_LOOPBACK_NAMES = (b"127.0.0.1", b"localhost", b"[::1]")
_PROXIED = (b"forwarded", b"via", b"x-real-ip")


class PageMount:
    """An ASGI app. Without a page for this request, it answers as any other path that does not exist."""

    def __init__(self, parts: Parts, hosts: Callable[[], HostRules]) -> None:
        self._parts = parts
        self._hosts = hosts
        self._app: PageApp | None = None
        self._building = asyncio.Lock()

    def end_streams(self) -> None:
        """End the streams of events, so that the daemon can stop."""
        if self._app is not None:
            self._app.streams.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        config = self._parts.current.config.page
        try:
            head = checked_head(scope["headers"], self._hosts())
        except HttpError as error:
            await _plain(send, error.status, str(error))
            return
        if not config.enabled or not (config.public or is_local(scope, head)):
            await _plain(send, 404, "Not Found")
            return
        await (await self._built())(scope, receive, send)

    async def _built(self) -> PageApp:
        async with self._building:
            if self._app is None:
                self._app = await asyncio.to_thread(_build, self._parts)
            return self._app


class ConsentMount:
    """An ASGI app: the consent page, for every browser that uses a host of the gateway."""

    def __init__(self, parts: Parts, server: AuthorizationServer, hosts: Callable[[], HostRules]) -> None:
        self._parts = parts
        self._server = server
        self._hosts = hosts
        self._app: ConsentApp | None = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            checked_head(scope["headers"], self._hosts())
        except HttpError as error:
            await _plain(send, error.status, str(error))
            return
        if not self._server.issuer:  # a reload has taken the address away
            await _plain(send, 404, "Not Found")
            return
        async with self._building:
            if self._app is None:
                self._app = await asyncio.to_thread(_build_consent, self._parts, self._server)
        await self._app(scope, receive, send)


class ConnectMount:
    """An ASGI app: the pages of sign-in links, for every browser that uses a host of the gateway.

    While no server has accounts of callers, it answers as any other path that does not exist.
    """

    def __init__(self, parts: Parts, hosts: Callable[[], HostRules], address: Callable[[], str]) -> None:
        self._parts = parts
        self._hosts = hosts
        self._address = address
        self._app: ConnectApp | None = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        servers = self._parts.current.config.servers.values()
        if not any(server.credentials == "per-caller" for server in servers):
            await _plain(send, 404, "Not Found")
            return
        try:
            checked_head(scope["headers"], self._hosts())
        except HttpError as error:
            await _plain(send, error.status, str(error))
            return
        async with self._building:
            if self._app is None:
                self._app = await asyncio.to_thread(_build_connect, self._parts, self._address)
        await self._app(scope, receive, send)


def is_local(scope: Scope, head: Head) -> bool:
    """Whether a browser on this machine asks, by the name of this machine, and not through a proxy."""
    client = scope.get("client")
    if client is None or not _is_loopback(client[0]):
        return False
    if any(name in _PROXIED or name.startswith(b"x-forwarded-") for name in head):
        return False
    host = head.get(b"host", b"").lower()
    return host in _LOOPBACK_NAMES or host.rpartition(b":")[0] in _LOOPBACK_NAMES


def _is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def _build(parts: Parts) -> PageApp:
    from pointsman.router.page.app import PageApp

    return PageApp(parts)


def _build_consent(parts: Parts, server: AuthorizationServer) -> ConsentApp:
    from pointsman.router.page.consent import ConsentApp

    return ConsentApp(parts, server)


def _build_connect(parts: Parts, address: Callable[[], str]) -> ConnectApp:
    from pointsman.router.page.connect import ConnectApp

    return ConnectApp(parts, address)


async def _plain(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
