"""The page as an ASGI app: sign-in, static files, events, and the screens behind one check of session and form."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from pointsman.core.errors import UnauthorizedError
from pointsman.router.owner.approvals import count_waiting
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.page_sign_ins import SESSION_S, SIGN_IN, Session
from pointsman.router.page.events import Streams
from pointsman.router.page.forms import FormError, read_form
from pointsman.router.page.registry import Handler, load_screens
from pointsman.router.page.rendering import Renderer
from pointsman.router.page.safety import check_csrf, check_origin, secured
from pointsman.router.page.static import StaticFiles
from pointsman.router.page.view import View

logger = logging.getLogger(__name__)

SIGNED_IN = "/page/signed-in"
_CODE = re.compile(r"[A-Za-z0-9_-]{1,128}")


class PageApp:
    """Built at the first request. `streams` are the open streams of events, which the daemon ends."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.screens = load_screens()
        self.static = StaticFiles()
        self.renderer = Renderer(self.static, self.screens)
        self.streams = Streams(parts, {name: topic for screen in self.screens for name, topic in screen.topics.items()})
        names = parts.sign_ins.names
        self.session_cookie, self.flash_cookie = f"pointsman_page_{names[0]}", f"pointsman_flash_{names[0]}"
        self.login_cookie = f"pointsman_login_{names[0]}"
        # A replica with the keys in another order, while they are changed, has made the cookie under another name.
        self._session_cookies = [f"pointsman_page_{name}" for name in names]
        routes = [
            Route("/page/enter", self._bare(self._enter), methods=["GET"]),
            Route("/page/leave", self._signed_in(self._leave), methods=["POST"]),
            Route("/page/events", self._signed_in(self._events), methods=["GET"]),
            Route("/page/static/{name}", self._bare(self._static), methods=["GET"]),
            Route(SIGNED_IN, self._bare(self._server_signed_in), methods=["GET"]),
            Route("/page", self._bare(self._to_start), methods=["GET"]),
        ]
        for screen in self.screens:
            routes += [
                Route(path, self._signed_in(handler, screen.name), methods=[verb])
                for verb, path, handler in screen.routes
            ]
        self._router = Router(routes, redirect_slashes=False, default=self._bare_asgi(self._not_found))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # ------------------------------------------------------------------ without a session

    async def _enter(self, request: Request) -> Response:
        """Turn a code into a cookie. The redirect removes the code from the address bar and the history."""
        if request.method != "GET":  # a program that looks at a link must not use it up
            return Response(status_code=405, headers={"Allow": "GET"})
        code = request.query_params.get("code", "")
        sign_ins, audit = self.parts.sign_ins, self.parts.audit
        cookie = await sign_ins.redeem_once(code) if _CODE.fullmatch(code) else None
        if cookie is None:
            many = sign_ins.too_many_failures()
            if not many:
                audit.record_refusal(UnauthorizedError.code, kind="change", method=SIGN_IN, token_id=None)
            response = self._render(request, "code_refused.html", 429 if many else 403, too_many=many)
        else:
            audit.record_change(SIGN_IN, "page", client="page")
            response = RedirectResponse("/", 303)
            self.set_cookie(request, response, self.session_cookie, cookie, int(SESSION_S))
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    async def _server_signed_in(self, request: Request) -> Response:
        if request.method != "GET":
            return Response(status_code=405, headers={"Allow": "GET"})
        from pointsman.router.page.screens.server_sign_in import signed_in

        return await signed_in(self, request)

    async def _to_start(self, request: Request) -> Response:
        return RedirectResponse("/", 303)

    async def _static(self, request: Request) -> Response:
        return self.static.response(request.path_params["name"]) or self._render(request, "not_found.html", 404)

    async def _not_found(self, request: Request) -> Response:
        return self._render(request, "not_found.html", 404)

    # ------------------------------------------------------------------ with a session

    async def _leave(self, view: View) -> Response:
        """Sign this browser out. `pointsman page logout` signs all of them out."""
        response = RedirectResponse("/", 303)
        for name in self._session_cookies:
            response.delete_cookie(name, path="/", httponly=True, samesite="strict")
        return response

    async def _events(self, view: View) -> Response:
        topics = view.query("topics").split(",")
        return self.streams.response(topics, lambda: self._session(view.request) is not None)

    # ------------------------------------------------------------------ around every answer

    def _bare(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return secured(await handler(request))
            except Exception:
                logger.exception("the page failed at %s", request.scope["path"])
                return secured(PlainTextResponse("This failed inside the gateway; its log has the reason.", 500))

        return endpoint

    def _bare_asgi(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[..., Awaitable[None]]:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            await secured(await handler(request))(scope, receive, send)

        return app

    def _signed_in(self, handler: Handler, screen: str = "") -> Callable[[Request], Awaitable[Response]]:
        """Require a session and, for a form, that it is one of ours. Never lets an exception out."""

        async def endpoint(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                own = request.scope["path"] == "/" and request.method == "GET"
                return secured(self._render(request, "welcome.html", 200 if own else 401))
            view = View(self, request, session, screen)
            try:
                if request.method == "POST":
                    view.form = await self._checked_form(request, session)
                elif screen:
                    view.waiting = await count_waiting(self.parts)
                response = await handler(view)
            except ClientDisconnect:
                return Response(status_code=400)
            except FormError as error:
                response = view.problem(str(error), error.status)
            except OwnerError as error:
                response = view.problem(str(error), 404 if error.code.startswith("unknown_") else 409)
            except Exception:
                logger.exception("the page failed at %s", request.scope["path"])
                response = view.problem("This failed inside the gateway; its log has the reason.", 500)
            return secured(response)

        return endpoint

    def _session(self, request: Request) -> Session | None:
        found = map(self.parts.sign_ins.session, map(request.cookies.get, self._session_cookies))
        return next((session for session in found if session is not None), None)

    async def _checked_form(self, request: Request, session: Session) -> dict[str, list[str]]:
        """Raises FormError. The cookie alone proves nothing: a browser also sends it for pages on other ports."""
        host = request.headers.get("host", "")
        check_origin(request, f"http://{host}", f"https://{host}")
        form = await read_form(request, self.parts.current.config.limits.body_bytes)
        check_csrf(form, session)
        return form

    def _render(self, request: Request, template: str, status: int = 200, **context: object) -> Response:
        """A page for somebody who is not signed in, which says nothing about servers."""
        url = f"{request.url.scheme}://{request.headers.get('host', '')}/mcp"
        body = self.renderer.render(template, client_url=url, **context)
        return Response(body, status, media_type="text/html")

    def set_cookie(self, request: Request, response: Response, name: str, value: str, life_s: int) -> None:
        secure = request.headers.get("x-forwarded-proto", "").lower() == "https"
        response.set_cookie(name, value, max_age=life_s, path="/", secure=secure, httponly=True, samesite="strict")
