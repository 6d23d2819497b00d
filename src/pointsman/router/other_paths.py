"""The paths beside `/mcp`: their app is built at the first request to one of them, because it takes 20 ms to import."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class OtherPaths:
    """An ASGI app.

    `build` runs on the event loop, once: requests that wait for a thread would take the connections of others.
    """

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            self._app = self._build()
        await self._app(scope, receive, send)
