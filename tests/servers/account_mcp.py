"""An MCP server with accounts, and an issuer that signs people in: who uses the browser is the header `X-Account`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import jwt
from aiohttp import web

from tests.router.auth.issuer import ec_key
from tests.servers.oauth_mcp import Json, OAuthMcp

ACCOUNT = "X-Account"


class AccountMcp(OAuthMcp):
    """Notes whose account each call and each session used."""

    def __init__(self, era: Literal["legacy", "modern"] = "modern") -> None:
        super().__init__(era)
        self.has_get_stream = False
        self.account_of: dict[str, str] = {}  # by code, access token and refresh token
        self.calls: list[tuple[str, Json]] = []  # account and arguments
        self.sessions: dict[str, set[str]] = defaultdict(set)
        self.capabilities = {**self.capabilities, "prompts": {}}
        self.read: list[tuple[str, str]] = []  # account and method of each read
        self.refuses: set[str] = set()  # accounts whose tokens it does not accept, however new they are

    async def _authorize(self, request: web.Request) -> web.StreamResponse:
        before = set(self.codes)
        answer = await super()._authorize(request)
        for code in set(self.codes) - before:
            self.account_of[code] = request.headers.get(ACCOUNT, "nobody")
        return answer

    def _redeem(self, given: Json) -> web.StreamResponse:
        return self._noted(super()._redeem, given, given["code"])

    def _renew(self, given: Json) -> web.StreamResponse:
        return self._noted(super()._renew, given, given["refresh_token"])

    def _noted(self, issue: Any, given: Json, by: str) -> web.StreamResponse:
        known = {*self.access, *self.refresh}
        answer: web.StreamResponse = issue(given)
        for token in {*self.access, *self.refresh} - known:
            self.account_of[token] = self.account_of.get(by, "nobody")
        return answer

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        account = self.account_of.get(token, "") if token in self.access else ""
        if account in self.refuses:
            self.authorization.append(token)
            return web.Response(status=401, headers={"WWW-Authenticate": self._challenge(None)})
        if account:
            session = request.headers.get("Mcp-Session-Id")
            if session is not None:
                self.sessions[session].add(account)
            message = await request.json() if request.method == "POST" else {}
            if message.get("method") == "tools/call":
                self.calls.append((account, message["params"].get("arguments", {})))
        return await super()._handle(request)

    async def _answer(self, request: web.Request, message: Json, method: str) -> web.StreamResponse:
        answers: dict[str, Json] = {
            "resources/list": {"resources": [{"uri": "notes://today", "name": "today"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "prompts/list": {"prompts": [{"name": "greet"}]},
            "resources/read": {"contents": [{"uri": "notes://today", "text": "read"}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "got"}}]},
            "completion/complete": {"completion": {"values": ["one"]}},
        }
        if method not in answers:
            return await super()._answer(request, message, method)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not method.endswith("list"):
            self.read.append((self.account_of.get(token, ""), method))
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": answers[method]})

    def accounts_for(self, **arguments: Any) -> list[str]:
        """Whose account the calls with these arguments used."""
        return [account for account, given in self.calls if arguments.items() <= given.items()]


class JwtIssuer(OAuthMcp):
    """An issuer in `auth`: its access tokens are JWTs, with the account as `sub` and the `resource` as `aud`."""

    def __init__(self) -> None:
        super().__init__()
        self.people: dict[str, str] = {}  # code -> account
        self.server_metadata = {"jwks_uri": None}

    async def start(self) -> None:
        await super().start()
        self.server_metadata = {"jwks_uri": f"{self.base}/jwks"}

    def token(self, account: str, resource: str) -> str:
        claims = {"iss": self.issuer, "aud": resource, "sub": account, "exp": int(time.time()) + 600, "scope": "mcp"}
        return jwt.encode(claims, ec_key().private, ec_key().algorithm, headers={"kid": ec_key().id, "typ": "at+jwt"})

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/jwks":
            return web.json_response({"keys": [ec_key().public]})
        return await super()._metadata(request)

    async def _authorize(self, request: web.Request) -> web.StreamResponse:
        before = set(self.codes)
        answer = await super()._authorize(request)
        for code in set(self.codes) - before:
            self.people[code] = request.headers.get(ACCOUNT, "nobody")
        return answer

    def _redeem(self, given: Json) -> web.StreamResponse:
        asked = self.codes.pop(given["code"], None)
        if asked is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        token = self.token(self.people[given["code"]], asked["resource"])
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": 600})


@asynccontextmanager
async def serving(*servers: OAuthMcp) -> AsyncIterator[None]:
    try:
        for server in servers:
            await server.start()
        yield
    finally:
        for server in servers:
            await server.stop()
