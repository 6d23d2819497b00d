"""A small MCP server that wants tokens, with a small authorization server that gives them. Switches are attributes.

Both are on one port of 127.0.0.1. What the authorization server was asked is in `asked`, by endpoint. Its page to sign
in says yes at once and redirects.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import httpx2
from aiohttp import web
from multidict import CIMultiDict

from tests.servers.http_mcp import HttpMcp

Json = dict[str, Any]
PKCE = "code_challenge_methods_supported"


class OAuthMcp(HttpMcp):
    """The MCP server is at `url`; the issuer is `issuer`."""

    def __init__(self, era: Literal["legacy", "modern"] = "modern", issuer_path: str = "") -> None:
        super().__init__(era)
        self.issuer_path = issuer_path
        self.asked: dict[str, list[Json]] = {"register": [], "authorize": [], "token": [], "revoke": [], "metadata": []}
        self.authorization: list[str | None] = []  # of each request to the MCP server
        self.resource: str | None = None  # in its metadata; None: its URL
        self.named_issuer: str | None = None  # in its metadata; None: its own
        self.resource_metadata: str | None = ""  # in the challenge; "": its own, None: the challenge has none
        self.challenge_scope: str | None = None
        self.other_challenges: list[str] = []  # each in a line of its own, before and after the one that counts
        self.scopes_supported: list[str] | None = None
        self.server_metadata: Json = {}  # replaces or adds; None removes
        self.resource_places = ("/.well-known/oauth-protected-resource/mcp",)
        self.metadata_places: tuple[str, ...] | None = None  # None: the RFC 8414 place of the issuer
        self.token_life_s: float | None = 3600
        self.rotates = True
        self.gives_refresh_tokens = True
        self.registered: dict[str, Json] = {}
        self.registration: Json = {}  # replaces or adds in the answer
        self.registration_status = 201
        self.answer_iss: str | None = None  # in the redirect; None: none
        self.answer_error: str | None = None
        self.granted_scope: str | None = None
        self.needed_scopes: dict[str, str] = {}  # tool -> scope
        self.accepts_no_token = False
        self.token_answer: Callable[[Json], Awaitable[web.StreamResponse | None]] | None = None
        self.codes: dict[str, Json] = {}
        self.access: dict[str, str] = {}  # token -> its scope
        self.refresh: dict[str, str] = {}
        self.used_refresh: list[str] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def issuer(self) -> str:
        return self.base + self.issuer_path

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 20)
        app.router.add_route("*", "/mcp", self._handle)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/register", self._register)
        app.router.add_post("/revoke", self._revoke)
        app.router.add_get("/{path:.*}", self._metadata)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def expire_all(self) -> None:
        """No access token is accepted any more."""
        self.access.clear()

    def grants(self, kind: str) -> list[Json]:
        return [one for one in self.asked["token"] if one.get("grant_type") == kind]

    # ------------------------------------------------------------------ the MCP server

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization")
        self.authorization.append(given)
        scope = self.access.get((given or "").removeprefix("Bearer "))
        if scope is None or self.accepts_no_token:
            return web.Response(status=401, headers=self._challenges(self.challenge_scope))
        if request.method == "POST" and self.needed_scopes:
            message = await request.json()
            tool = (message.get("params") or {}).get("name") if message.get("method") == "tools/call" else None
            needed = self.needed_scopes.get(str(tool))
            if needed is not None and needed not in scope.split():
                return web.Response(status=403, headers=self._challenges(needed, error="insufficient_scope"))
        return await super()._handle(request)

    def _challenges(self, scope: str | None, error: str | None = None) -> CIMultiDict[str]:
        lines = [*self.other_challenges, self._challenge(scope, error), *self.other_challenges]
        return CIMultiDict([("WWW-Authenticate", line) for line in lines])

    def _challenge(self, scope: str | None, error: str | None = None) -> str:
        named = f"{self.base}{self.resource_places[0]}" if self.resource_metadata == "" else self.resource_metadata
        parts = {"error": error, "scope": scope, "resource_metadata": named}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value is not None)

    # ------------------------------------------------------------------ documents

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        self.asked["metadata"].append({"path": request.path})
        if request.path in self.resource_places:
            document: Json = {
                "resource": self.resource or self.url,
                "authorization_servers": [self.named_issuer or self.issuer],
            }
            if self.scopes_supported is not None:
                document["scopes_supported"] = self.scopes_supported
            return web.json_response(document)
        places = self.metadata_places or (f"/.well-known/oauth-authorization-server{self.issuer_path}",)
        if request.path not in places:
            return web.Response(status=404, text="nothing here")
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "revocation_endpoint": f"{self.base}/revoke",
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            PKCE: ["S256"],
        } | self.server_metadata
        return web.json_response({name: value for name, value in document.items() if value is not None})

    # ------------------------------------------------------------------ the authorization server

    async def _register(self, request: web.Request) -> web.StreamResponse:
        given = await request.json()
        self.asked["register"].append(given)
        if self.registration_status != 201:
            return web.json_response({"error": "invalid_redirect_uri"}, status=self.registration_status)
        client_id = f"client-{len(self.registered) + 1}"
        self.registered[client_id] = given
        answer: Json = {"client_id": client_id, "token_endpoint_auth_method": given["token_endpoint_auth_method"]}
        if given["token_endpoint_auth_method"] != "none":
            answer["client_secret"] = f"secret of {client_id}"
        return web.json_response(answer | self.registration, status=201)

    async def _authorize(self, request: web.Request) -> web.StreamResponse:
        asked = dict(request.query)
        self.asked["authorize"].append(asked)
        answer = {"state": asked["state"]}
        if self.answer_iss is not None:
            answer["iss"] = self.answer_iss
        if self.answer_error is not None:
            answer["error"] = self.answer_error
        else:
            answer["code"] = code = secrets.token_hex(8)
            self.codes[code] = asked
        return web.Response(status=302, headers={"Location": f"{asked['redirect_uri']}?{urlencode(answer)}"})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        given: Json = dict(parse_qsl(await request.text()))
        given["_authorization"] = request.headers.get("Authorization")
        self.asked["token"].append(given)
        if self.token_answer is not None and (answer := await self.token_answer(given)) is not None:
            return answer
        kind = given["grant_type"]
        if kind == "authorization_code":
            return self._redeem(given)
        if kind == "client_credentials":
            return self._issue(self.granted_scope or given.get("scope", ""), refresh=False)
        return self._renew(given)

    def _redeem(self, given: Json) -> web.StreamResponse:
        asked = self.codes.pop(given["code"], None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != given["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._issue(self.granted_scope or asked.get("scope", ""), refresh=self.gives_refresh_tokens)

    def _renew(self, given: Json) -> web.StreamResponse:
        token = given["refresh_token"]
        scope = self.refresh.get(token)
        if scope is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.used_refresh.append(token)
        if self.rotates:
            del self.refresh[token]
        return self._issue(scope, refresh=self.rotates)

    def _issue(self, scope: str, *, refresh: bool) -> web.StreamResponse:
        token = f"at-{secrets.token_hex(8)}"
        self.access[token] = scope
        answer: Json = {"access_token": token, "token_type": "Bearer"}
        if self.token_life_s is not None:
            answer["expires_in"] = self.token_life_s
        if self.granted_scope is not None:
            answer["scope"] = self.granted_scope
        if refresh:
            answer["refresh_token"] = renewal = f"rt-{secrets.token_hex(8)}"
            self.refresh[renewal] = scope
        return web.json_response(answer)

    async def _revoke(self, request: web.Request) -> web.StreamResponse:
        given = dict(parse_qsl(await request.text()))
        self.asked["revoke"].append(given)
        self.refresh.pop(given["token"], None)
        return web.Response()


async def signed_in_at(url: str) -> dict[str, str]:
    """What a person's browser brings back after the sign-in at `url`: the parameters of the redirect."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(url)
    assert answer.status_code == 302, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["Location"]).query))


def basic(header: str | None) -> tuple[str, str]:
    """Client id and secret in `Authorization: Basic`."""
    assert header is not None
    name, _, secret = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
    return unquote(name), unquote(secret)


@asynccontextmanager
async def serving_oauth(era: Literal["legacy", "modern"] = "modern", issuer_path: str = "") -> AsyncIterator[OAuthMcp]:
    server = OAuthMcp(era, issuer_path)
    server.has_get_stream = False
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        await asyncio.sleep(0)
