"""The routes beside `/mcp`: the front's other paths, health, metrics, and the OAuth paths that clients probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pointsman.core import wire
from pointsman.router.auth.metadata import WELL_KNOWN, Resources
from pointsman.router.downstream.oauth.client_document import PATH as CLIENT_DOCUMENT
from pointsman.router.downstream.oauth.client_document import client_document
from pointsman.router.front.asgi import Front
from pointsman.router.front.http.authentication import Claims, authenticate, read_claims, verify
from pointsman.router.front.http.connections import is_exempt
from pointsman.router.front.http.headers import checked_head
from pointsman.router.front.http.responses import HttpError, sorted_allow
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.metrics_page import MetricsPage
from pointsman.router.observe.health import Health
from pointsman.router.observe.metrics import CONTENT_TYPE
from pointsman.router.owner.channel import Operation
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.replicas import PATH as PEER_PATH
from pointsman.router.owner.replicas import peer_endpoint
from pointsman.router.page.mount import CONNECT_PATHS, CONSENT_PATHS, PATHS, ConnectMount, ConsentMount, PageMount

Endpoint = Callable[[Request], Awaitable[Response]]
Page = Callable[[Claims], Awaitable[Response]]

_NO_OAUTH = {
    "error": "invalid_request",
    "error_description": (
        "This gateway does not use OAuth. Create a token with "
        "`pointsman token create NAME --project '*' --server '*'` and let your client send it "
        "in the header `Authorization: Bearer TOKEN`."
    ),
}
_NOT_HERE = {
    "error": "invalid_request",
    "error_description": (
        "There is nothing at this address. The header `WWW-Authenticate` of a 401 names the metadata of the gateway, "
        "and these name its authorization servers."
    ),
}
METADATA_S = 300  # for which clients may keep the metadata
_OAUTH_PATHS = ("/register", "/.well-known/oauth-{rest:path}", "/.well-known/openid-configuration{rest:path}")
_OAUTH_VERBS = ["GET", "POST", "OPTIONS"]


def build_app(front: Front, gateway: PointsmanGateway, health: Health, page: PageMount, parts: Parts) -> Starlette:
    """Return the app for `Front.other_paths`. Only the page changes the configuration, for a browser signed in."""

    async def show_health(claims: Claims) -> Response:
        caller = authenticate(gateway, claims) if claims.token is not None else None
        body = wire.encode(health.report(caller))
        return Response(body, 200 if health.ready else 503, media_type="application/json")

    async def show_metrics(claims: Claims) -> Response:
        return Response(await metrics.show(claims), media_type=CONTENT_TYPE)

    metrics = MetricsPage(front, parts)
    connect = ConnectMount(parts, lambda: front.hosts, parts.address)
    probed = answer_to_probes(lambda: front.sign_in.resources if front.sign_in is not None else None)
    app = Starlette(
        routes=[
            *front.routes(),
            Route("/health", _page(show_health, front)),
            Route("/metrics", _page(show_metrics, front)),
            *authorization_routes(front, parts, probed),
            *oauth_routes(probed),
            Route(CLIENT_DOCUMENT, _client_document(parts), methods=_OAUTH_VERBS),
            *(Route(path, connect) for path in CONNECT_PATHS),
            *(Route(path, page) for path in PATHS),
            *peer_routes(parts, metrics.operations()),
        ],
        exception_handlers={405: _refuse_method},
    )
    app.router.redirect_slashes = False  # a redirect would repeat the request's Host header, whatever it is
    return app


def peer_routes(parts: Parts, more: Mapping[str, Operation]) -> list[Route]:
    """Return the path at which other replicas ask this one, if there may be any."""
    if parts.peers is None:
        return []
    return [Route(PEER_PATH, peer_endpoint(parts, parts.peers, more), methods=["POST"])]


async def _refuse_method(request: Request, error: Exception) -> Response:
    """Starlette's own answer, with the methods in one order."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse(error.detail, 405, headers=sorted_allow(error.headers or {}))


def authorization_routes(front: Front, parts: Parts, probed: Endpoint) -> list[Route]:
    """Return the paths of the gateway's own authorization server; none if it was off at the start.

    `probed` answers if a reload has switched it off.
    """
    server = parts.authorization
    if server is None:
        return []
    from pointsman.router.auth.server.endpoints import oauth_endpoints

    def address(request: Request) -> str | None:
        host = request.client.host if request.client is not None else ""
        return None if is_exempt(host, front.hosts.trusted_proxies) else host

    def guarded(endpoint: Endpoint) -> Endpoint:
        async def checked(request: Request) -> Response:
            try:
                checked_head(request.headers.raw, front.hosts)
            except HttpError as error:
                return Response(error.body(), error.status, media_type="application/json")
            return await (endpoint if server.issuer else probed)(request)

        return checked

    consent = ConsentMount(parts, server, lambda: front.hosts)
    return [*(Route(path, consent) for path in CONSENT_PATHS), *oauth_endpoints(server, address, guarded)]


def oauth_routes(probed: Endpoint | None = None) -> list[Route]:
    """Return the OAuth paths that clients probe after a 401."""
    return [Route(path, probed or answer_to_probes(), methods=_OAUTH_VERBS) for path in _OAUTH_PATHS]


def answer_to_probes(resources: Callable[[], Resources | None] = lambda: None) -> Endpoint:
    """Return the answer to probes: metadata of the gateway's resources, if one can sign in.

    All other paths get a 404 with an `error_description` that says what to do: several clients show the user only
    that sentence.
    """

    async def answer(request: Request) -> Response:
        known, path = resources(), request.url.path
        if known is None:
            return JSONResponse(_NO_OAUTH, status_code=404)
        document = known.document(path.removeprefix(WELL_KNOWN)) if path.startswith(WELL_KNOWN) else None
        if document is None or request.method not in ("GET", "HEAD"):
            return JSONResponse(_NOT_HERE, status_code=404)
        return JSONResponse(document, headers={"cache-control": f"max-age={METADATA_S}"})

    return answer


def _client_document(parts: Parts) -> Callable[[Request], Awaitable[Response]]:
    """Who the gateway is as a client of servers. Without `listen.public_url` there is nothing at its path."""

    async def answer(request: Request) -> Response:
        document = client_document(parts.current.config)
        if document is None or request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Not Found", 404)
        return JSONResponse(document, headers={"cache-control": f"max-age={METADATA_S}"})

    return answer


def _page(page: Page, front: Front) -> Callable[[Request], Awaitable[Response]]:
    """Return a page that needs no token, and shows more with one. `page` may raise HttpError."""

    async def endpoint(request: Request) -> Response:
        sent = "authorization" in request.headers
        try:
            claims = read_claims(checked_head(request.headers.raw, front.hosts), None)
            if front.sign_in is not None:
                await verify(front.sign_in, claims.token)
            return await page(claims)
        except HttpError as error:  # an invalid token is an error even where none is needed
            found = front.headers_of(error, request.url.path, token_sent=sent)
            headers = {name.decode(): value.decode() for name, value in found}
            return Response(error.body(), error.status, headers, media_type="application/json")

    return endpoint
