"""The page's part of a sign-in to a server: shows where to sign in, and takes what the browser brings back."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from pointsman.config.sections.server import Server
from pointsman.core.model import Json
from pointsman.router.auth.fetch import is_loopback_host
from pointsman.router.downstream.oauth.client_document import PAGE_CALLBACK
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.server_sign_ins import (
    LOGIN,
    begin_sign_in,
    credentials,
    end_credential,
    end_sign_in,
    finish_sign_in,
)
from pointsman.router.page.view import CLIENT, View

if TYPE_CHECKING:
    from pointsman.router.page.app import PageApp

START = "/page/servers"
COOKIE_S = 600
MAX_ACCOUNTS = 200  # that are shown
_MAX_PARAMETERS = 16
_NOT_BEGUN = (
    "This browser did not begin the sign-in, or it is finished or has expired. The page of the server shows whether it "
    "is signed in; if not, go on in the browser where you began, or begin again there."
)


async def login(view: View) -> Response:
    """Show the link at which the owner signs in. It is for this browser, as a cookie says that comes back."""
    server_id = view.path("id")
    begun = await begin_sign_in(view.parts, server_id, _redirect_uri(view), asked_by=CLIENT)
    response = view.render("server_sign_in.html", url=begun["url"], host=begun["host"], server_id=server_id)
    view.set_login_cookie(response, _digest(begun["state"]), COOKIE_S)
    return response


async def logout(view: View) -> Response:
    server_id = view.path("id")
    if not view.confirmed:
        text = "The gateway forgets its tokens. Its tools are away until you sign in again."
        return view.confirm(f"Sign out of {server_id}?", text, button="Sign out", back=f"{START}/{server_id}")
    await end_sign_in(view.parts, server_id, CLIENT)
    return view.done(f"Signed out of `{server_id}`.", f"{START}/{server_id}")


async def accounts_of(parts: Parts, server_id: str, server: Server) -> list[Json]:
    """The accounts of callers at a server; none where all use one, or while they cannot be read."""
    if server.oauth is None or server.credentials != "per-caller":
        return []
    try:
        found: list[Json] = (await credentials(parts, server_id))["credentials"]
    except OwnerError:
        return []
    return found[:MAX_ACCOUNTS]


async def revoke_account(view: View) -> Response:
    server_id, back = view.path("id"), f"{START}/{view.path('id')}"
    if not view.confirmed:
        text = "Its caller has to sign in again before it can use the server."
        return view.confirm("Revoke this account?", text, button="Revoke", danger=True, back=back)
    ended = await end_credential(view.parts, server_id, view.field("account"), CLIENT)
    return view.done(f"The account of {ended['who']} is revoked.", back)


async def signed_in(app: PageApp, request: Request) -> Response:
    """The browser is back from the authorization server. It brings no session: the request comes from another site."""
    given = request.query_params.multi_items()
    answer = dict(given)
    state, cookie = answer.pop("state", ""), request.cookies.get(app.login_cookie, "")
    if len(given) > _MAX_PARAMETERS or len(answer) != len(given) - 1 or not _is_same(cookie, state):
        app.parts.audit.record_refusal("other_browser", kind="change", method=LOGIN, token_id=None, client=CLIENT)
        return _told(app, problem=_NOT_BEGUN)
    try:
        found = await finish_sign_in(app.parts, state, answer, CLIENT)
    except OwnerError as error:
        response = _told(app, problem=str(error))
    else:
        response = _told(app, found=found)
    response.delete_cookie(app.login_cookie, path=PAGE_CALLBACK, httponly=True, samesite="lax")
    return response


def _told(app: PageApp, found: Any = None, problem: str = "") -> Response:
    body = app.renderer.render("signed_in.html", one=found, problem=problem, start=START)
    response = Response(body, 200 if found is not None else 403, media_type="text/html")
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _redirect_uri(view: View) -> str:
    """Where the browser returns: to this machine by the name that it uses, or to `listen.public_url`."""
    host = view.request.headers["host"]
    if is_loopback_host(host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host):
        return f"http://{host}{PAGE_CALLBACK}"
    public = view.parts.current.config.listen.public_url
    if public is None:
        raise OwnerError(
            "public_url",
            "The browser could not return here: set `listen.public_url`, or run `pointsman server login`.",
        )
    return f"{public}{PAGE_CALLBACK}"


def _is_same(cookie: str, state: str) -> bool:
    return bool(state) and secrets.compare_digest(cookie.encode(), _digest(state).encode())


def _digest(state: str) -> str:
    return hashlib.sha256(f"login {state}".encode()).hexdigest()
