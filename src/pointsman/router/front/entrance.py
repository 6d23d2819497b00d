"""The outermost app: requests to `/mcp` go straight to the front, all others through the routes.

Routing and Starlette's middleware would add a quarter to the cost of a call.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from pointsman.router.front.asgi import Front


class Entrance:
    def __init__(self, front: Front, routes: ASGIApp) -> None:
        self._front = front
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            await self._front(scope, receive, send)
        else:
            await self._routes(scope, receive, send)
