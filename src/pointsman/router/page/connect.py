"""The page of a link at which a person signs in to a server for one caller: it says for whom, and asks.

Who may go on depends on who the caller is. A person who signs in at an issuer does so here, too, and must be the same.
For a token of the YAML, or a grant, that is the owner: nobody else is known to be behind it. So a link that somebody
else opens connects nothing, whatever that person agrees to.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from pointsman.catalog.holders import Holder, holder_of, issuer_of
from pointsman.catalog.identities import is_identity, person_of
from pointsman.config.sections.server import Server
from pointsman.core.errors import RefusedError
from pointsman.core.escape import escaped
from pointsman.router.auth.fetch import is_loopback_host
from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.oauth.client_document import CALLBACK, client_document_url
from pointsman.router.downstream.oauth.discovery import SignInError
from pointsman.router.downstream.oauth.documents import lacking, shown_scopes
from pointsman.router.downstream.oauth.links import CONNECT, LINK_S, VISIT_S, Link, Visit
from pointsman.router.downstream.oauth.proof import begin_proof, finish_proof
from pointsman.router.downstream.oauth.store import digest
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.page_sign_ins import CONSENT, PAGE
from pointsman.router.page.forms import FormError, read_form
from pointsman.router.page.rendering import Renderer
from pointsman.router.page.safety import check_origin, secured
from pointsman.router.page.static import StaticFiles
from pointsman.router.state.key_values import StateAwayError

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.service import ServerSignIns

METHOD: Final = "server/caller-sign-in"  # of its audit rows
STATIC_PATH: Final = "/oauth/connect-static"
MAX_FORM_BYTES: Final = 16_384
BEGIN_S: Final = 60.0  # for several documents and a registration
_MAX_PARAMETERS: Final = 16
_Found = TypeVar("_Found")
_AUDIENCE: Final = "connect"  # of what a form carries
DECLINE: Final = "no"  # a form's answer
_GONE: Final = "This link has expired, was declined or was used already. Make the call again: it gives a new link."
_REVOKED: Final = "The caller that this link is for can no longer use the server, so nothing was connected."
_OTHER_BROWSER: Final = (
    "This browser did not begin this sign-in, so nothing was connected. Go on in the browser where it began, or make "
    "the call again and open its link in this one."
)
_UNKNOWN: Final = (
    "This sign-in is finished, has expired or is unknown, so nothing was connected now. If the account is not "
    "connected yet, make the call again: it gives a new link."
)
_DECLINED: Final = "You said no, so nothing was connected and the link no longer works. The next call gives a new one."

logger = logging.getLogger(__name__)


class ConnectError(Exception):
    """The sign-in does not go on. `str(error)` is shown to the person; `code` is in the audit."""

    def __init__(self, message: str, code: str, status: int = 403, link: Link | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.link = link


class ConnectApp:
    """Built at the first request."""

    def __init__(self, parts: Parts, address: Callable[[], str]) -> None:
        self._parts = parts
        self._address = address  # where browsers find the gateway
        self._static = StaticFiles(STATIC_PATH)
        self._renderer = Renderer(self._static, ())
        names = parts.sign_ins.names
        self._cookie = f"pointsman_connect_{names[0]}"
        self._owner_cookies = [(f"pointsman_{kind}_{name}", kind) for kind in (CONSENT, PAGE) for name in names]
        self._router = Router(
            [
                Route(CONNECT + "/{link}", self._around(self._show), methods=["GET"]),
                Route(CONNECT + "/{link}", self._around(self._begin), methods=["POST"]),
                Route(CALLBACK, self._around(self._return), methods=["GET"]),
                Route(STATIC_PATH + "/{name}", self._around(self._serve_static), methods=["GET"]),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # ------------------------------------------------------------------ the link

    async def _show(self, request: Request) -> Response:
        """Say what the link is for. It stays unused: programs look at links, too."""
        link = await self._sign_ins.links.find(request.path_params["link"])
        if link is None:
            raise ConnectError(_GONE, "unknown_link", 404)
        server = self._checked(link)
        browser = request.cookies.get(self._cookie) or secrets.token_urlsafe(32)
        csrf = self._parts.sign_ins.sealed(_AUDIENCE, {"link": digest(link.text), "browser": digest(browser)}, LINK_S)
        facts, lacks = self._facts(link, server), await self._lacks(link, server)
        response = self._render("connect.html", csrf=csrf, action=f"{CONNECT}/{link.text}", lacks=lacks, **facts)
        self._set_cookie(response, browser)
        return response

    async def _begin(self, request: Request) -> Response:
        """The person has answered: use the link up, and if it agrees, lead to the first page to sign in."""
        text, browser = request.path_params["link"], request.cookies.get(self._cookie, "")
        links = self._sign_ins.links
        link = await links.find(text)
        if link is None:
            raise ConnectError(_GONE, "unknown_link", 404)
        try:
            check_origin(request, self._origin)
            form = await read_form(request, MAX_FORM_BYTES)
            self._check_form(form.get("csrf", [""])[0], text, browser)
        except FormError as error:
            raise ConnectError(str(error), "invalid_form", error.status, link) from None
        if form.get("answer", [""])[0] == DECLINE:
            await links.decline(link)
            raise ConnectError(_DECLINED, "declined", 200, link)
        server = self._checked(link)
        issuer = issuer_of(self._parts.current.config, person_of(link.token))
        if issuer is None and not self._is_owner(request):
            return self._render("connect_owner.html", 403, again=f"{CONNECT}/{text}", **self._facts(link, server))
        link = await links.take(text)
        if link is None:
            raise ConnectError(_GONE, "unknown_link", 404)
        if issuer is None:
            return await self._to_server(link, server, digest(browser))
        document = client_document_url(self._parts.current.config)
        url, state, proof = await self._limited(
            begin_proof(issuer, f"{self._origin}/mcp", self._callback, self._sign_ins.store, document), link
        )
        await links.begin_visit(state, link, digest(browser), proof)
        return self._next(url, link, server, proves=True)

    # ------------------------------------------------------------------ the way back

    async def _return(self, request: Request) -> Response:
        """The browser is back from an authorization server: the issuer's, or the server's."""
        given = request.query_params.multi_items()
        answer = dict(given)
        state = answer.pop("state", "")
        if len(given) > _MAX_PARAMETERS or len(answer) != len(given) - 1 or not state:
            raise ConnectError(_UNKNOWN, "unknown_state")
        visit = await self._visit(state, digest(request.cookies.get(self._cookie, "")))
        server = self._checked(visit.link)
        try:
            if visit.proof is not None:
                await self._check_person(visit, answer)
                return await self._to_server(visit.link, server, visit.browser)
            return await self._connected(visit.link, state, answer)
        except ConnectError:
            if answer.get("error") == "access_denied":
                await self._sign_ins.links.give_up(visit.link)
            raise

    async def _visit(self, state: str, browser: str) -> Visit:
        """Use a visit up. Another browser cannot: the person may still come back in the right one.

        Raises ConnectError.
        """
        links = self._sign_ins.links
        found = await links.find_visit(state)
        if found is None:
            raise ConnectError(_UNKNOWN, "unknown_state")
        if not secrets.compare_digest(browser, found.browser):
            raise ConnectError(_OTHER_BROWSER, "other_browser", link=found.link)
        visit = await links.end_visit(state)
        if visit is None:
            raise ConnectError(_UNKNOWN, "unknown_state")
        return visit

    async def _check_person(self, visit: Visit, answer: dict[str, str]) -> None:
        """Raises ConnectError: somebody else signed in."""
        assert visit.proof is not None
        token = await self._limited(finish_proof(visit.proof, answer), visit.link)
        source = next((one for one in self._parts.catalog.identities.sources if one.may_know(token)), None)
        try:
            found = await source.identify(token) if source is not None else None
        except RefusedError as error:
            raise ConnectError(f"Nothing was connected: {error}", "other_person", link=visit.link) from None
        if found is None or person_of(found.id) != Holder.parse(visit.link.holder).person:
            raise ConnectError(
                "You are somebody else than the person who made the call, so nothing was connected. If somebody sent "
                "you this link, do not use it: your account would have worked for that person.",
                "other_person",
                link=visit.link,
            )

    async def _to_server(self, link: Link, server: Server, browser: str) -> Response:
        url, state = await self._limited(self._sign_ins.begin(link.server, server, self._callback, link.holder), link)
        await self._sign_ins.links.begin_visit(state, link, browser)
        return self._next(url, link, server, proves=False)

    async def _connected(self, link: Link, state: str, answer: dict[str, str]) -> Response:
        servers = self._parts.current.config.servers
        await self._limited(self._sign_ins.finish(state, answer, servers.get), link)
        self._sign_ins.links.signed_in(link.server, link.holder)
        self._parts.audit.record_change(
            METHOD,
            f"servers.{link.server}",
            client="browser",
            server_id=link.server,
            project_id=link.project,
            token_id=link.token,
            source=METHOD,
        )
        response = self._render("connected.html", **self._facts(link, servers[link.server]))
        response.delete_cookie(self._cookie, path="/oauth", httponly=True, samesite="lax")
        return response

    # ------------------------------------------------------------------ checks

    def _checked(self, link: Link) -> Server:
        """The server's entry, if the caller may still use it with the same holder. Raises ConnectError."""
        config, rights, caller = self._parts.current.config, self._parts.catalog.rights, link.caller
        server = config.servers.get(link.server)
        valid = rights.token_of(caller.token_id) is not None and rights.may_use_server(caller, link.server)
        if not is_identity(caller.token_id):
            valid = valid and self._parts.catalog.still_valid(caller)  # a token of the YAML may have expired
        if server is None or not valid or holder_of(config, caller) != link.holder:
            raise ConnectError(_REVOKED, "revoked", link=link)
        if server.oauth is None or server.credentials != "per-caller":
            raise ConnectError("The server's entry has changed since. Make the call again.", "changed", link=link)
        return server

    def _check_form(self, csrf: str, text: str, browser: str) -> None:
        content = self._parts.sign_ins.unsealed(csrf, _AUDIENCE)
        if content is None or (content["link"], content["browser"]) != (digest(text), digest(browser)):
            raise FormError("This form is not of this browser, or is too old. Open the link again.", 403)

    def _is_owner(self, request: Request) -> bool:
        sign_ins = self._parts.sign_ins
        found = (sign_ins.session(request.cookies.get(name), kind) for name, kind in self._owner_cookies)
        return any(session is not None for session in found)

    async def _limited(self, work: Awaitable[_Found], link: Link) -> _Found:
        """Raises ConnectError."""
        try:
            async with asyncio.timeout(BEGIN_S):
                return await work
        except SignInError as error:
            raise ConnectError(f"Nothing was connected. {error}", error.audit_code, 409, link) from None
        except TimeoutError:
            text = "The authorization server did not answer in time. Make the call again."
            raise ConnectError(text, "timeout", 409, link) from None

    # ------------------------------------------------------------------ answers

    def _facts(self, link: Link, server: Server) -> dict[str, Any]:
        person, config = person_of(link.token), self._parts.current.config
        issuer = issuer_of(config, person)
        return {
            "server_name": server.name or link.server,
            "server_host": urlsplit(server.url or "").netloc.rpartition("@")[2],
            "server_id": link.server,
            "kind": "person" if issuer is not None else "grant" if is_identity(person) else "token",
            "person": _shown(person),
            "issuer": urlsplit(issuer.issuer).netloc if issuer is not None else "",
            "project": link.project,
            "client": link.client or "a client without a name",
            "command": self._owner_command(),
            "left": self._sign_ins.links.time_left(link),
        }

    async def _lacks(self, link: Link, server: Server) -> str:
        """The scopes that a call needs and the connected account does not have; empty: that is not the reason."""
        try:
            known = await self._sign_ins.source(link.server, server, link.holder).current()
        except ConnectionLostError:
            return ""
        return shown_scopes(lacking(known.wanted, known.scope)) if known is not None and known.access else ""

    def _owner_command(self) -> str:
        """What prints a link that shows this browser's person to be the owner; empty: nothing does at this address."""
        authorization, page = self._parts.authorization, self._parts.current.config.page
        if authorization is not None and authorization.issuer:
            return "pointsman grant sign-in"
        local = is_loopback_host(urlsplit(self._address()).hostname or "")
        return "pointsman open" if page.enabled and (page.public or local) else ""

    def _next(self, url: str, link: Link, server: Server, *, proves: bool) -> Response:
        """Show where to sign in next. No redirect: the person sees the address first."""
        facts = self._facts(link, server)
        return self._render("connect_next.html", url=url, host=urlsplit(url).netloc, proves=proves, **facts)

    def _refused(self, error: ConnectError) -> Response:
        token_id = error.link.token if error.link is not None else None
        self._parts.audit.record_refusal(error.code, kind="change", method=METHOD, token_id=token_id, client="browser")
        return self._render("connect_refused.html", error.status, problem=str(error))

    def _around(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if request.method == "HEAD":
                return Response(status_code=405, headers={"Allow": "GET, POST"})
            try:
                response = await handler(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except ConnectError as error:
                response = self._refused(error)
            except StateAwayError:
                text = "Sign-ins cannot be kept now: the gateway's state cannot be used. Try again later."
                response = self._render("connect_refused.html", 503, problem=text)
            except Exception:
                logger.exception("the page to connect an account failed")  # the path has a secret
                response = PlainTextResponse("This failed inside the gateway; its log has the reason.", 500)
            return secured(response)

        return endpoint

    async def _serve_static(self, request: Request) -> Response:
        return self._static.response(request.path_params["name"]) or PlainTextResponse("Not Found", 404)

    @property
    def _sign_ins(self) -> ServerSignIns:
        return self._parts.server_sign_ins()

    @property
    def _callback(self) -> str:
        return f"{self._address()}{CALLBACK}"

    @property
    def _origin(self) -> str:
        parts = urlsplit(self._address())
        return f"{parts.scheme}://{parts.netloc}"

    def _set_cookie(self, response: Response, value: str) -> None:
        """`Lax`: the browser comes back from another site."""
        secure = self._origin.startswith("https:")
        response.set_cookie(
            self._cookie, value, int(LINK_S + VISIT_S), path="/oauth", secure=secure, httponly=True, samesite="lax"
        )

    def _render(self, template: str, status: int = 200, **context: Any) -> Response:
        return Response(self._renderer.render(template, **context), status, media_type="text/html")


def _shown(person: str) -> str:
    """As the person knows itself: the subject as its issuer names it, with invisible characters made visible."""
    return escaped(unquote(person.partition("/")[2])) if is_identity(person) else person
