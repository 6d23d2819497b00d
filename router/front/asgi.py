"""The entry: an ASGI app for `/mcp` and `/projects/{id}/mcp`. Checks come first, then who calls, then the era."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from pointsman.catalog.errors import Denied, Unauthorized
from pointsman.catalog.model import Caller, Json
from pointsman.config.model import Limits
from pointsman.router.front.answers import respond_refusal
from pointsman.router.front.body import read_body
from pointsman.router.front.checks import (
    Head,
    HostRules,
    check_accepts_answers,
    check_accepts_stream,
    check_content_type,
    checked_head,
)
from pointsman.router.front.desk import Desk
from pointsman.router.front.failures import Clock
from pointsman.router.front.identity import Claims, claims_of, with_meta
from pointsman.router.front.legacy import LegacyEra, client_name
from pointsman.router.front.message import echoed_id, meta_of, parse
from pointsman.router.front.modern import ModernEra
from pointsman.router.front.parking import Parking
from pointsman.router.front.refusal import ClientLeft, Refusal, denied, overloaded, unauthorized, wrong_verb
from pointsman.router.front.sealing import Seal, WallClock
from pointsman.router.front.sessions import Sessions
from pointsman.router.sdk import CLIENT_INFO_META_KEY, HANDSHAKE_PROTOCOL_VERSIONS, SERVER_INFO_META_KEY
from pointsman.router.seams import INTERNAL_ERROR, Gateway

_LEGACY_VERSIONS = frozenset({None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)})
_READ_FOR_AUDIT = 64 << 10  # bytes of a refused body, to learn what was tried
_REAP_EVERY_S = 30.0
_CANCEL_S = 2.0  # for cancelled calls to end


class Visit:
    """One HTTP request, and what is known of it so far."""

    __slots__ = ("address", "body_taken", "head", "message", "receive", "send", "token")

    def __init__(self, receive: Receive, send: Send) -> None:
        self.receive = receive
        self.send = send
        self.head: Head = {}
        self.token: str | None = None  # for the audit of a refusal
        self.address: str | None = None  # the project in header or path
        self.message: Json | None = None
        self.body_taken = False


class Front:
    """Mount it as the endpoint of a route; `run` beside it; `drain` before the end."""

    def __init__(
        self,
        gateway: Gateway,
        limits: Limits,
        hosts: HostRules,
        *,
        server_info: Json,
        instructions: str | None = None,
        request_keys: Sequence[str] = (),
        clock: Clock = time.monotonic,
        wall_clock: WallClock = time.time,
        ping_s: float = 15.0,
    ) -> None:
        """`request_keys`: see `router.request_keys`. Without any, nothing that clients carry outlives this object."""
        keys = tuple(request_keys) or (secrets.token_hex(32),)
        self._gateway = gateway
        self._limits = limits
        self._hosts = hosts
        self._desk = Desk(gateway, server_info, instructions, clock, ping_s)
        self._sessions = Sessions(clock, limits.sessions, limits.session_idle_s)
        self._legacy = LegacyEra(self._desk, self._sessions)
        self._parking = Parking(
            self._desk,
            Seal(keys, "pointsman", wall_clock),
            {SERVER_INFO_META_KEY: server_info},
            limits.parked,
            limits.parked_s,
        )
        self._modern = ModernEra(self._desk, self._parking)
        self._draining = False

    def configure(self, limits: Limits, hosts: HostRules) -> None:
        """Take over new limits and names. What is open stays open."""
        self._limits = limits
        self._hosts = hosts
        self._sessions.most = limits.sessions
        self._sessions.idle_s = limits.session_idle_s
        self._parking.most = limits.parked
        self._parking.wait_s = limits.parked_s

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def hosts(self) -> HostRules:
        return self._hosts

    @property
    def sessions_open(self) -> int:
        return len(self._sessions)

    @property
    def calls_parked(self) -> int:
        return len(self._parking)

    @property
    def calls_running(self) -> int:
        return len(self._desk.running)

    async def run(self) -> None:
        """Forget sessions that nobody uses, until cancelled."""
        while True:
            await asyncio.sleep(min(_REAP_EVERY_S, self._sessions.idle_s / 2))
            self._sessions.reap()

    async def drain(self, grace_s: float) -> None:
        """Refuse what is new, end the streams, let calls finish for `grace_s`, then cancel them."""
        self._draining = True
        self._sessions.end_streams()
        self._modern.end_streams()
        self._parking.end_all()  # nobody could answer them any more
        await self._desk.idle(grace_s)
        self._desk.cancel_all()
        await self._desk.idle(_CANCEL_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the front serves HTTP, not {scope['type']}")
        visit = Visit(receive, send)
        try:
            try:
                await self._serve(scope, visit)
            except Refusal as refusal:
                await self._refuse(scope["method"], visit, refusal)
        except ClientLeft:
            return
        except Exception as error:
            self._desk.failures.report(scope["method"], error)
            await respond_refusal(send, Refusal(500, "Internal error", code=INTERNAL_ERROR), echoed_id(visit.message))

    async def _serve(self, scope: Scope, visit: Visit) -> None:
        """Raises Refusal, ClientLeft."""
        visit.head = checked_head(scope["headers"], self._hosts)
        if self._draining:
            raise overloaded("The gateway is shutting down. Try again in a moment.")
        path_params = scope.get("path_params")
        claims = claims_of(visit.head, path_params.get("id") if path_params else None)
        visit.token, visit.address = claims.token, claims.project
        legacy = visit.head.get(b"mcp-protocol-version") in _LEGACY_VERSIONS
        verb = scope["method"]
        if verb == "POST":
            await self._post(visit, claims, legacy)
        elif verb in ("GET", "DELETE") and legacy:
            await self._session_verb(verb, visit, claims)
        else:
            raise wrong_verb(b"GET, POST, DELETE" if legacy else b"POST")

    async def _post(self, visit: Visit, claims: Claims, legacy: bool) -> None:
        check_accepts_answers(visit.head)
        caller = self._vouched(claims)
        check_content_type(visit.head)
        visit.body_taken = True
        body = await read_body(visit.head, visit.receive, self._limits.body_bytes)
        try:
            message = visit.message = parse(body)
        except Refusal:
            if caller is None:
                self._identify(claims)  # without a token not even the reason is told
            raise
        completed = with_meta(claims, meta_of(message))
        if caller is None or completed is not claims:
            visit.token = completed.token
            caller = self._identify(completed)
        if legacy:
            await self._legacy.post(visit.head, message, caller, visit.address, visit.receive, visit.send)
        else:
            await self._modern.post(visit.head, message, caller, visit.receive, visit.send)

    async def _session_verb(self, verb: str, visit: Visit, claims: Claims) -> None:
        if verb == "GET":
            check_accepts_stream(visit.head)
        if not claims.project_stated and b"mcp-session-id" in visit.head:
            claims = Claims(claims.token, self._legacy.project_of(visit.head), project_stated=False)
        caller = self._identify(claims)
        if verb == "GET":
            await self._legacy.get(visit.head, caller, visit.address, visit.receive, visit.send)
        else:
            await self._legacy.delete(visit.head, caller, visit.address, visit.send)

    def _vouched(self, claims: Claims) -> Caller | None:
        """The caller by its headers alone; None where the body may still say more. Raises Refusal 401, 403."""
        if claims.token is None:
            return None
        try:
            return self._gateway.identify(claims.token, claims.project)
        except Unauthorized as error:
            raise unauthorized(str(error)) from None
        except Denied as error:
            if claims.project_stated:
                raise denied(str(error)) from None
            return None

    def _identify(self, claims: Claims) -> Caller:
        """Raises Refusal 401, 403."""
        try:
            return self._gateway.identify(claims.token, claims.project)
        except Unauthorized as error:
            raise unauthorized(str(error)) from None
        except Denied as error:
            raise denied(str(error)) from None

    async def _refuse(self, verb: str, visit: Visit, refusal: Refusal) -> None:
        """Raises ClientLeft."""
        if refusal.audited and verb == "POST":
            await self._report(visit, refusal.data["code"])
        await respond_refusal(visit.send, refusal, echoed_id(visit.message))

    async def _report(self, visit: Visit, code: str) -> None:
        """Tell the audit what was tried. A body that was not read yet is read for that only. Raises ClientLeft."""
        if not visit.body_taken:
            visit.message = await self._tried(visit)
        message = visit.message or {}
        params, method = message.get("params") or {}, message.get("method")
        info = params.get("clientInfo") or (params.get("_meta") or {}).get(CLIENT_INFO_META_KEY)
        self._gateway.refused(code, visit.token, method, params, client_name(info))

    async def _tried(self, visit: Visit) -> Json | None:
        try:
            message = parse(await read_body(visit.head, visit.receive, _READ_FOR_AUDIT))
            with_meta(Claims(None, None, project_stated=False), meta_of(message))  # takes the secrets out
        except Refusal:
            return None
        return message
