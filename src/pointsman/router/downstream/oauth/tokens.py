"""What is asked of an authorization server: a client id, tokens for a code or a client, new tokens, and their end."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from msgspec import Struct

from pointsman.core.model import Json
from pointsman.router.auth.fetch import Answer, FetchError, Reach, fetch_json, is_loopback_host
from pointsman.router.downstream.oauth.discovery import SignInError
from pointsman.router.downstream.oauth.documents import AuthorizationServer, fetch_code, scopes_in

TOKEN_S = 10.0  # for one request to a token endpoint, which may write to a database
CLIENT_NAME = "Pointsman"
NONE, BASIC, POST, KEY = "none", "client_secret_basic", "client_secret_post", "private_key_jwt"
_METHODS = (NONE, BASIC, POST)
_MAX_TOKEN = 16 * 1024
_MAX_LIFE_S = 10 * 365 * 86_400.0
_BOUND = (
    "Its authorization server gave a token that is bound to a key (`token_type: DPoP`), and the gateway can use bearer "
    "tokens only. Register a client there that gets bearer tokens, and set `oauth.client_id`, or ask its operator."
)
_TOKEN = re.compile(r"[\x21-\x7E]+")
_ERROR = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Client(Struct, frozen=True, omit_defaults=True):
    """Who we are at one authorization server."""

    id: str
    issuer: str  # where it is known; another one never sees it
    secret: str = ""  # or its private key, which is never stored
    auth: str = NONE
    redirect_uri: str = ""  # of a registration: it is good for this one only
    expires: float = 0.0  # of a secret, on the wall clock; 0: never
    key_id: str = ""  # with a key: its id there
    algorithms: tuple[str, ...] = ()  # that the server takes signatures by; none: it does not say


class Tokens(Struct, frozen=True):
    access: str
    refresh: str
    expires: float | None  # wall clock
    scope: str | None  # as granted, if it says so


class RefusedError(SignInError):
    """The authorization server answered with an OAuth error. `code` is its code."""

    def __init__(self, code: str, what: str, step: str = "", where: str | None = None) -> None:
        super().__init__(f"Its authorization server refused {what} ({code}).{step and ' '}{step}", where=where)
        self.code = code


async def register(
    server: AuthorizationServer, redirect_uri: str, scope: str | None, reach: Reach, setting: str = "oauth.client_id"
) -> Client:
    """Register a client for this redirect URI (RFC 7591). `setting` could name another client. Raises SignInError."""
    step = f"Register one there, and set `{setting}`."
    if server.registration_endpoint is None:
        raise SignInError(f"Its authorization server registers no clients by itself. {step}")
    asked: Json = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _preferred_auth(server),
        "application_type": "native" if is_loopback_host(urlsplit(redirect_uri).hostname or "") else "web",
    }
    if scope:
        asked["scope"] = scope
    answer = await _post(server.registration_endpoint, reach, body=asked)
    if not answer.ok:
        what = f"to register a client for {redirect_uri}"
        raise RefusedError(_error_in(answer), what, step, server.registration_endpoint)
    return _registered(answer.document, server, redirect_uri)


def _registered(document: Json, server: AuthorizationServer, redirect_uri: str) -> Client:
    client_id, secret = document.get("client_id"), document.get("client_secret")
    if not isinstance(client_id, str) or not 0 < len(client_id) <= 2048:
        raise SignInError("Its authorization server answered a registration without a client id.")
    secret = secret if isinstance(secret, str) and len(secret) <= _MAX_TOKEN else ""
    auth = document.get("token_endpoint_auth_method")
    if auth is None:
        auth = _preferred_auth(server) if secret else NONE
    if auth not in _METHODS or (auth != NONE and not secret):
        raise SignInError("Its authorization server registered a client that cannot be used: no secret that we know.")
    expires = document.get("client_secret_expires_at")
    ends = float(expires) if isinstance(expires, int | float) and secret else 0.0
    return Client(client_id, server.issuer, secret, auth, redirect_uri, ends)


def configured_auth(server: AuthorizationServer, secret: str, wanted: str | None) -> str:
    """How a client that the operator registered proves itself."""
    if wanted is not None:
        return wanted
    if not secret:
        return NONE
    return POST if server.token_auth is not None and BASIC not in server.token_auth else BASIC


def _preferred_auth(server: AuthorizationServer) -> str:
    if server.token_auth is None:
        return BASIC  # what RFC 8414 says of a server that says nothing
    return next((method for method in (NONE, BASIC, POST) if method in server.token_auth), NONE)


async def redeem(
    endpoint: str, client: Client, reach: Reach, *, code: str, verifier: str, redirect_uri: str, resource: str
) -> Tokens:
    """Exchange a code. Raises SignInError."""
    grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    return await _tokens(endpoint, client, reach, grant | {"resource": resource}, "the sign-in")


async def refresh(endpoint: str, client: Client, reach: Reach, *, token: str, resource: str) -> Tokens:
    """Get new tokens for a refresh token. Raises SignInError."""
    grant = {"grant_type": "refresh_token", "refresh_token": token, "resource": resource}
    return await _tokens(endpoint, client, reach, grant, "to renew the sign-in")


async def of_client(endpoint: str, client: Client, reach: Reach, *, scope: str | None, resource: str) -> Tokens:
    """Get a token for the client itself. Raises SignInError."""
    grant = {"grant_type": "client_credentials", "resource": resource} | ({"scope": scope} if scope else {})
    what = "our client id and key" if client.auth == KEY else "our client id and secret"
    return await _tokens(endpoint, client, reach, grant, what)


async def revoke(endpoint: str, client: Client, reach: Reach, token: str) -> None:
    """End a token at its server (RFC 7009), which answers with a status and any content. Raises SignInError."""
    form, headers = _authenticated(client, {"token": token})
    answer = await _post(endpoint, reach, form=form, headers=headers, status_only=True)
    if not answer.ok:
        raise RefusedError(_error_in(answer), "to end the sign-in")


async def _tokens(endpoint: str, client: Client, reach: Reach, grant: Mapping[str, str], what: str) -> Tokens:
    form, headers = _authenticated(client, grant)
    answer = await _post(endpoint, reach, form=form, headers=headers)
    if not answer.ok:
        if answer.status >= 500 or answer.status == 429:
            raise SignInError(f"Its authorization server failed (HTTP {answer.status}). Try again later.")
        raise RefusedError(_error_in(answer), what)
    return _read_tokens(answer.document)


def _authenticated(client: Client, grant: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Raises SignInError: its key cannot be used."""
    if client.auth == BASIC:
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        return dict(grant), {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if client.auth == KEY:
        from pointsman.router.downstream.oauth.client_assertion import TYPE, assertion

        proof = {"client_assertion_type": TYPE, "client_assertion": assertion(client)}
        return {**grant, "client_id": client.id, **proof}, {}
    if client.auth == POST:
        return {**grant, "client_id": client.id, "client_secret": client.secret}, {}
    return {**grant, "client_id": client.id}, {}


async def _post(
    endpoint: str,
    reach: Reach,
    *,
    form: Mapping[str, str] | None = None,
    body: Json | None = None,
    headers: Mapping[str, str] | None = None,
    status_only: bool = False,
) -> Answer:
    try:
        return await fetch_json(
            endpoint,
            reach,
            method="POST",
            form=form,
            body=body,
            headers=headers,
            timeout_s=TOKEN_S,
            status_only=status_only,
        )
    except FetchError as error:
        why = f"Its authorization server cannot be used: {error}. If it stays so, ask the server's operator."
        raise SignInError(why, fetch_code(error), where=endpoint) from None


def _read_tokens(document: Json) -> Tokens:
    access, kind, renewal = document.get("access_token"), document.get("token_type"), document.get("refresh_token")
    if isinstance(kind, str) and kind.lower() == "dpop":
        raise SignInError(_BOUND, "key_bound_token")
    if not _is_token(access) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise SignInError("Its authorization server gave no bearer token. Ask its operator for one.")
    scope = document.get("scope")
    granted = " ".join(scopes_in(scope)) if isinstance(scope, str) else None
    return Tokens(str(access), str(renewal) if _is_token(renewal) else "", _end(document.get("expires_in")), granted)


def _is_token(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TOKEN and _TOKEN.fullmatch(value) is not None


def _end(life: object) -> float | None:
    """When a token ends; None: it does not say."""
    if isinstance(life, str) and re.fullmatch(r"[0-9]{1,12}", life):
        life = int(life)
    if not isinstance(life, (int, float)) or isinstance(life, bool) or life != life:
        return None
    return time.time() + min(max(float(life), 0.0), _MAX_LIFE_S)


def _error_in(answer: Answer) -> str:
    """The code of an OAuth error. Descriptions are a stranger's words, and are not shown."""
    code = answer.document.get("error")
    return code if isinstance(code, str) and is_error_code(code) else f"HTTP {answer.status}"


def is_error_code(text: str) -> bool:
    """Whether it is a short code, which can be shown."""
    return _ERROR.fullmatch(text) is not None
