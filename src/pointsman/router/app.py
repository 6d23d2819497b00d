"""The routes: the front on its paths, health and metrics beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pointsman.core import wire
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller
from pointsman.router.front.asgi import Front
from pointsman.router.front.http.answers import error_message
from pointsman.router.front.http.headers import checked_head
from pointsman.router.front.http.identity import claims_of
from pointsman.router.front.http.oauth_probe import oauth_routes
from pointsman.router.front.http.refusal import HttpError, denied, unauthorized
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.observe.health import Health
from pointsman.router.observe.metrics import CONTENT_TYPE, Metrics

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]
Page = Callable[[Caller | None], Awaitable[Response]]


def build_app(
    front: Front, gateway: PointsmanGateway, health: Health, metrics: Metrics, lifespan: Lifespan
) -> Starlette:
    """Nothing here takes a command or changes the configuration: that is the file's alone."""

    async def show_health(caller: Caller | None) -> Response:
        body = wire.encode(health.report(caller))
        return Response(body, 200 if health.ready else 503, media_type="application/json")

    async def show_metrics(caller: Caller | None) -> Response:
        text = await metrics.scrape(lambda server_id: caller is not None and gateway.may_see(caller, server_id))
        return Response(text, media_type=CONTENT_TYPE)

    app = Starlette(
        routes=[
            Route("/mcp", front),
            Route("/projects/{id}/mcp", front),
            *front.sse_routes(),
            Route("/health", _page(show_health, front, gateway)),
            Route("/metrics", _page(show_metrics, front, gateway)),
            *oauth_routes(),
        ],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect would repeat whatever Host the request came with
    return app


def _page(page: Page, front: Front, gateway: PointsmanGateway) -> Callable[[Request], Awaitable[Response]]:
    """A page that strangers may read, too, and that shows more to callers with a token."""

    async def endpoint(request: Request) -> Response:
        try:
            caller = _caller(request, front, gateway)
        except HttpError as refusal:
            headers = {name.decode(): value.decode() for name, value in refusal.headers}
            body = error_message(None, refusal.code, refusal.message, refusal.data)
            return Response(body, refusal.status, headers, media_type="application/json")
        return await page(caller)

    return endpoint


def _caller(request: Request, front: Front, gateway: PointsmanGateway) -> Caller | None:
    """Raises HttpError: a token that does not hold is worth saying, even where none is needed."""
    claims = claims_of(checked_head(request.headers.raw, front.hosts), None)
    if claims.token is None:
        return None
    try:
        return gateway.identify(claims.token, claims.project)
    except UnauthorizedError as error:
        raise unauthorized(str(error)) from None
    except ForbiddenError as error:
        raise denied(str(error)) from None
