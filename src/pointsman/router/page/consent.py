"""The consent page: the owner says whether a client gets access, and to what. It is at the public address.

The owner proves itself by a cookie of its own, which can do nothing else: a link of `pointsman grant sign-in` makes it
in any browser. The page's cookie counts, too, where the page is. A client's metadata document is fetched, and its
redirect URI is looked at, for the owner only: a stranger sees how to sign in, whatever the request says.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from pointsman.config.expiry import read_expiry
from pointsman.config.model import ANY, UNASSIGNED
from pointsman.config.sections.value_types import SCOPES
from pointsman.config.sections.values import parse_moment
from pointsman.core.errors import UnauthorizedError
from pointsman.router.auth.server import redirects
from pointsman.router.auth.server.clients import is_document
from pointsman.router.auth.server.requests import (
    AuthorizationRequest,
    Client,
    ClientError,
    RequestError,
    answer_url,
    checked_request,
    read_query,
    verified_redirect,
)
from pointsman.router.auth.server.server import AUTHORIZE, AuthorizationServer, Choice
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.page_sign_ins import CONSENT, CONSENT_S, SIGN_IN, Session
from pointsman.router.page.forms import FormError, read_form
from pointsman.router.page.rendering import Renderer
from pointsman.router.page.safety import check_csrf, check_origin, secured
from pointsman.router.page.static import StaticFiles

PATH: Final = "/oauth/authorize"
SIGN_IN_PATH: Final = "/oauth/sign-in"
STATIC_PATH: Final = "/oauth/static"
DEFAULT_EXPIRY: Final = "90d"
MAX_FORM_BYTES: Final = 65_536
WAITING_S: Final = 600.0  # for the owner to sign in
_MAX_KEPT_CHARS: Final = 2800  # of the requests in a cookie
_CODE = re.compile(r"(?:\S*[?&]code=)?([A-Za-z0-9_-]{32,128})")  # a link, or only its code
_NO_PROJECT: Final = "-"
_ALL: Final = "all"
_THESE: Final = "these"
_SCOPE_TEXTS: Final = {
    ("read",): "Only tools that read",
    ("read", "write"): "No destructive tools",
    SCOPES: "All tools",
}

logger = logging.getLogger(__name__)


class ConsentApp:
    """Built at the first request."""

    def __init__(self, parts: Parts, server: AuthorizationServer) -> None:
        self._parts = parts
        self._server = server
        self._static = StaticFiles(STATIC_PATH)
        self._renderer = Renderer(self._static, ())
        names = parts.sign_ins.names
        self._cookie, self._kept = f"pointsman_consent_{names[0]}", f"pointsman_request_{names[0]}"
        self._cookies = [(f"pointsman_{kind}_{name}", kind) for kind in (CONSENT, "page") for name in names]
        self._router = Router(
            [
                Route(PATH, self._around(self._ask), methods=["GET"]),
                Route(PATH, self._around(self._decide), methods=["POST"]),
                Route(SIGN_IN_PATH, self._around(self._enter), methods=["GET"]),
                Route(SIGN_IN_PATH, self._around(self._enter_by_form), methods=["POST"]),
                Route(STATIC_PATH + "/{name}", self._around(self._serve_static), methods=["GET"]),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # ------------------------------------------------------------------ the owner signs in

    async def _enter(self, request: Request) -> Response:
        """A link of `pointsman grant sign-in`, in the browser that has the request, or in another one."""
        if request.method != "GET":  # a program that looks at a link must not use it up
            return Response(status_code=405, headers={"Allow": "GET"})
        response = await self._entered(request.query_params.get("code", ""), self._waiting(request))
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    async def _enter_by_form(self, request: Request) -> Response:
        """A link that was pasted into the page, because the request is open in a browser of another machine."""
        check_origin(request, self._origin)
        form = await read_form(request, MAX_FORM_BYTES)
        query = _field(form, "request")
        return await self._entered(_field(form, "code").strip(), [query] if query else [])

    async def _entered(self, code: str, queries: list[str]) -> Response:
        """`queries`: the requests that wait for the owner, the oldest first."""
        sign_ins, audit = self._parts.sign_ins, self._parts.audit
        found = _CODE.fullmatch(code)
        cookie = await sign_ins.redeem_once(found[1], CONSENT) if found else None
        if cookie is None:
            many = sign_ins.too_many_failures()
            if not many:
                audit.record_refusal(UnauthorizedError.code, kind="change", method=SIGN_IN, token_id=None)
            context = {"too_many": many, "is_link": found is not None, "query": queries[-1] if queries else ""}
            return self._render("consent_link_refused.html", 429 if many else 403, **context)
        audit.record_change(SIGN_IN, "consent", client="page")
        response = self._next(queries)
        self._set_cookie(response, self._cookie, cookie, CONSENT_S)
        response.delete_cookie(self._kept, path="/oauth")
        return response

    def _next(self, queries: list[str]) -> Response:
        """Lead the owner to the request that waits; if several do, let the owner choose."""
        if len(queries) == 1:
            return RedirectResponse(f"{PATH}?{queries[0]}", 303)
        waiting = [{"query": query, **self._summary(query)} for query in queries]
        servers = self._parts.current.config.servers.values()
        connects = any(server.credentials == "per-caller" and server.oauth is not None for server in servers)
        return self._render("consent_ready.html", waiting=waiting, connects=connects)

    def _summary(self, query: str) -> dict[str, str]:
        """What tells a request from others, without fetching anything: by the client's own word."""
        try:
            fields = read_query(query)
        except RequestError:
            return {"client": "", "target": ""}
        client_id = fields.get("client_id", "")
        known = self._server.registrar.registration(client_id)
        name = known.name if known is not None else urlsplit(client_id).netloc if is_document(client_id) else ""
        return {"client": name, "target": redirects.target_of(fields.get("redirect_uri", ""))}

    def _waiting(self, request: Request) -> list[str]:
        kept = self._parts.sign_ins.unsealed(request.cookies.get(self._kept), "request")
        return kept["queries"] if kept is not None else []

    def _sign_in(self, request: Request, query: str) -> Response:
        """Say how to sign in, and keep the request for the way back, beside others that wait, if there is room."""
        if request.headers.get("sec-fetch-site") == "cross-site":
            # The page's cookie is not sent when another site leads here, but it is when this page does.
            return self._render("consent_again.html", query=query)
        queries = [*(one for one in self._waiting(request) if one != query), query]
        fits = sum(map(len, queries)) <= _MAX_KEPT_CHARS
        response = self._render("consent_sign_in.html", query=query, fits=fits)
        if fits:
            sealed = self._parts.sign_ins.sealed("request", {"queries": queries}, WAITING_S)
            self._set_cookie(response, self._kept, sealed, WAITING_S)
        return response

    # ------------------------------------------------------------------ the owner decides

    async def _ask(self, request: Request) -> Response:
        query = request.url.query
        fields = read_query(query)
        session = self._session(request)
        if session is None:
            return self._sign_in(request, query)
        return await self._with_request(fields, lambda asked: self._show(asked, session, query))

    async def _decide(self, request: Request) -> Response:
        session = self._session(request)
        check_origin(request, self._origin)
        form = await read_form(request, MAX_FORM_BYTES)
        query = _field(form, "request")
        fields = read_query(query)
        if session is None:
            return self._sign_in(request, query)
        check_csrf(form, session)
        return await self._with_request(fields, lambda asked: self._answer(asked, session, query, form))

    async def _with_request(
        self, fields: Mapping[str, str], handle: Callable[[AuthorizationRequest], Awaitable[Response]]
    ) -> Response:
        """Check the request again, and handle it. What is wrong with it goes to the client as soon as that is known."""
        client = await self._server.client(fields.get("client_id", ""))
        redirect_uri = verified_redirect(fields, client)
        try:
            asked = checked_request(fields, client, redirect_uri, self._server.resources)
        except ClientError as error:
            self._server.refuse(AUTHORIZE, error.code, client=client.name)
            answer = {"error": error.code, "error_description": str(error)}
            url = answer_url(redirect_uri, fields.get("state"), self._server.issuer, answer)
            if redirects.is_loopback(redirect_uri):
                return RedirectResponse(url, 303)
            # Anybody can register an address: no link to this gateway leads there before the owner has looked.
            target = redirects.target_of(redirect_uri)
            return self._render("consent_error.html", 400, problem=str(error), code=error.code, url=url, target=target)
        return await handle(asked)

    async def _show(self, asked: AuthorizationRequest, session: Session, query: str) -> Response:
        return self._consent(asked, session, query, {})

    async def _answer(
        self, asked: AuthorizationRequest, session: Session, query: str, form: dict[str, list[str]]
    ) -> Response:
        if _field(form, "seen") != _seen(asked):
            return self._consent(asked, session, query, form, "The request has changed since. Look again.")
        if _field(form, "decision") != "allow":
            return RedirectResponse(self._server.deny(asked), 303)
        try:
            choice = self._choice(asked, form)
        except ValueError as error:
            return self._consent(asked, session, query, form, str(error))
        return RedirectResponse(await self._server.allow(asked, choice), 303)

    def _choice(self, asked: AuthorizationRequest, form: dict[str, list[str]]) -> Choice:
        """Raises ValueError."""
        config = self._parts.current.config
        project = asked.project
        if project is None:
            chosen = _field(form, "project")
            project = UNASSIGNED if chosen == _NO_PROJECT else chosen
            if project not in (UNASSIGNED, *config.projects):
                raise ValueError("Choose the project that the client acts for.")
        servers = self._servers(_field(form, "reach"), form.get("servers", []))
        scopes = next((one for one in _scope_choices(asked) if " ".join(one) == _field(form, "scopes")), None)
        if scopes is None:
            raise ValueError("Choose what its tools may do.")
        return Choice((project,), servers, scopes, _expiry(_field(form, "expires").strip()))

    def _servers(self, reach: str, named: list[str]) -> tuple[str, ...]:
        """Raises ValueError, also if the choice is not clear: it never gives more than one part of it says."""
        if reach not in (_ALL, _THESE):
            raise ValueError("Choose all servers, or only some and name them.")
        if reach == _ALL and named:
            raise ValueError(
                "All servers are chosen, and single ones are ticked, too. Untick them, or choose “Only these”."
            )
        if reach == _ALL:
            return (ANY,)
        if not named or any(one not in self._parts.current.config.servers for one in named):
            raise ValueError("Choose at least one server, or all.")
        return tuple(named)

    def _consent(
        self, asked: AuthorizationRequest, session: Session, query: str, form: dict[str, list[str]], error: str = ""
    ) -> Response:
        config = self._parts.current.config
        scopes = _scope_choices(asked)
        vouched = bool(asked.client.host) and not form  # for others, the owner chooses, and nothing is chosen before
        response = self._render(
            "consent.html",
            400 if error else 200,
            error=error,
            asked=asked,
            client=asked.client,
            client_name=asked.client.name or "A client without a name",
            target=redirects.target_of(asked.redirect_uri),
            local=redirects.is_local(asked.redirect_uri),
            csrf=session.csrf,
            query=query,
            seen=_seen(asked),
            projects={_NO_PROJECT: "Without a project", **{one: one for one in config.projects}},
            servers={one: one for one in config.servers},
            scopes={" ".join(one): _SCOPE_TEXTS.get(one, f"Only: {', '.join(one)}") for one in scopes},
            chosen={
                "project": _field(form, "project") or _NO_PROJECT,
                "reach": _field(form, "reach") or (_ALL if vouched else ""),
                "servers": form.get("servers", []),
                "scopes": _field(form, "scopes") or (" ".join(asked.scopes) if vouched or len(scopes) == 1 else ""),
                "expires": _field(form, "expires") if form else DEFAULT_EXPIRY,
            },
        )
        # Browsers apply `form-action` to the redirect after the form, too, and it leads to the client.
        source = redirects.form_source(asked.redirect_uri)
        response.headers["Content-Security-Policy"] = (
            f"default-src 'self'; frame-ancestors 'none'; form-action 'self' {source}; base-uri 'none'; "
            "object-src 'none'"
        )
        return response

    # ------------------------------------------------------------------ around every answer

    async def _serve_static(self, request: Request) -> Response:
        return self._static.response(request.path_params["name"]) or PlainTextResponse("Not Found", 404)

    def _around(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                response = await handler(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except RequestError as error:
                self._server.refuse(AUTHORIZE, "invalid_request")
                response = self._render("consent_refused.html", 400, problem=str(error))
            except FormError as error:
                self._server.refuse(AUTHORIZE, "invalid_form")
                response = self._render("consent_refused.html", error.status, problem=str(error))
            except Exception:
                logger.exception("the consent page failed at %s", request.scope["path"])
                response = PlainTextResponse("This failed inside the gateway; its log has the reason.", 500)
            # A client may have opened this page as a window that its own page then talks to.
            response.headers.setdefault("Cross-Origin-Opener-Policy", "unsafe-none")
            return secured(response)

        return endpoint

    @property
    def _origin(self) -> str:
        parts = urlsplit(self._server.issuer)
        return f"{parts.scheme}://{parts.netloc}"

    def _session(self, request: Request) -> Session | None:
        sign_ins = self._parts.sign_ins
        found = (sign_ins.session(request.cookies.get(name), kind) for name, kind in self._cookies)
        return next((session for session in found if session is not None), None)

    def _set_cookie(self, response: Response, name: str, value: str, life_s: float) -> None:
        """`Lax`, because a client's site leads here. Forms have a token and the right origin besides."""
        secure = self._server.issuer.startswith("https:")
        response.set_cookie(name, value, int(life_s), path="/oauth", secure=secure, httponly=True, samesite="lax")

    def _render(self, template: str, status: int = 200, **context: Any) -> Response:
        return Response(self._renderer.render(template, **context), status, media_type="text/html")


def _scope_choices(asked: AuthorizationRequest) -> list[tuple[Any, ...]]:
    """What the client asks for, and less."""
    return [one for one in _SCOPE_TEXTS if set(one) < set(asked.scopes)] + [asked.scopes]


def _seen(asked: AuthorizationRequest) -> str:
    """A digest of what the page shows about the request."""
    client: Client = asked.client
    shown = [client.name, client.host, asked.redirect_uri, asked.resource, *asked.scopes]
    return sha256("\0".join(shown).encode(errors="replace")).hexdigest()


def _expiry(given: str) -> float:
    """When a grant ends; 0: never, as long as it is used. Raises ValueError."""
    if not given:
        return 0.0
    try:
        return parse_moment(read_expiry(given, datetime.now(UTC))).timestamp()
    except ValueError as error:
        text = str(error)
        raise ValueError(f"“Ends after” {text}" if text.startswith("must ") else f"“Ends after”: {text}") from None


def _field(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0]
