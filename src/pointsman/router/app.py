"""The routes beside `/mcp`: the front's other paths, health, metrics, and the OAuth paths that clients probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pointsman.core import wire
from pointsman.core.model import Caller
from pointsman.router.front.asgi import Front
from pointsman.router.front.http.authentication import authenticate, read_claims
from pointsman.router.front.http.headers import checked_head
from pointsman.router.front.http.responses import HttpError
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.observe.health import Health
from pointsman.router.observe.metrics import CONTENT_TYPE, Metrics
from pointsman.router.page.mount import PATHS, PageMount

Page = Callable[[Caller | None], Awaitable[Response]]

_NO_OAUTH = {
    "error": "invalid_request",
    "error_description": (
        "This gateway does not use OAuth. Create a token with "
        "`pointsman token create NAME --project '*' --server '*'` and let your client send it "
        "in the header `Authorization: Bearer TOKEN`."
    ),
}
_OAUTH_PATHS = ("/register", "/.well-known/oauth-{rest:path}", "/.well-known/openid-configuration{rest:path}")
_OAUTH_VERBS = ["GET", "POST", "OPTIONS"]


def build_app(front: Front, gateway: PointsmanGateway, health: Health, metrics: Metrics, page: PageMount) -> Starlette:
    """Return the app for `Front.other_paths`. Only the page changes the configuration, for a browser signed in."""

    async def show_health(caller: Caller | None) -> Response:
        body = wire.encode(health.report(caller))
        return Response(body, 200 if health.ready else 503, media_type="application/json")

    async def show_metrics(caller: Caller | None) -> Response:
        text = await metrics.scrape(
            lambda server_id: caller is not None and gateway.may_see(caller, server_id),
            lambda server_id, tool: caller is not None and gateway.may_use(caller, server_id, tool),
        )
        return Response(text, media_type=CONTENT_TYPE)

    app = Starlette(
        routes=[
            *front.routes(),
            Route("/health", _page(show_health, front, gateway)),
            Route("/metrics", _page(show_metrics, front, gateway)),
            *oauth_routes(),
            *(Route(path, page) for path in PATHS),
        ]
    )
    app.router.redirect_slashes = False  # a redirect would repeat the request's Host header, whatever it is
    return app


def oauth_routes() -> list[Route]:
    """Return the OAuth paths that clients probe after a 401.

    They answer 404 with an `error_description` that says what to do: several clients show the user only that sentence.
    """
    return [Route(path, _reject_oauth, methods=_OAUTH_VERBS) for path in _OAUTH_PATHS]


async def _reject_oauth(request: Request) -> JSONResponse:
    return JSONResponse(_NO_OAUTH, status_code=404)


def _page(page: Page, front: Front, gateway: PointsmanGateway) -> Callable[[Request], Awaitable[Response]]:
    """Return a page that needs no token, and shows more with one."""

    async def endpoint(request: Request) -> Response:
        try:
            claims = read_claims(checked_head(request.headers.raw, front.hosts), None)
            caller = authenticate(gateway, claims) if claims.token is not None else None
        except HttpError as error:  # an invalid token is an error even where none is needed
            headers = {name.decode(): value.decode() for name, value in error.headers}
            return Response(error.body(), error.status, headers, media_type="application/json")
        return await page(caller)

    return endpoint
