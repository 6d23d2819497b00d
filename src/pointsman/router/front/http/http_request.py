"""What every way in begins and ends with: checks of the head, who calls, the message, and refusals in fixed words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from pointsman.config.model import Limits
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller, Json
from pointsman.core.sdk import CLIENT_INFO_META_KEY
from pointsman.core.seams import INTERNAL_ERROR, Gateway
from pointsman.router.front.client_info import client_name
from pointsman.router.front.http.answers import respond_refusal
from pointsman.router.front.http.body import read_body
from pointsman.router.front.http.failures import Failures
from pointsman.router.front.http.headers import Head, HostRules, check_content_type, checked_head
from pointsman.router.front.http.identity import Claims, claims_of, with_meta
from pointsman.router.front.http.message import echoed_id, meta_of, parse
from pointsman.router.front.http.refusal import (
    ClientDisconnectedError,
    HttpError,
    denied,
    full,
    no_room,
    overloaded,
    too_many_streams,
    unauthorized,
)
from pointsman.router.front.methods import LEGACY_METHODS
from pointsman.router.front.open_streams import OpenStreams
from pointsman.router.serving.in_flight import InFlight, Lease

STREAM_SHARE = 4  # one token's streams take at most this part of the connections
_READ_FOR_AUDIT = 64 << 10  # bytes of a refused body, to learn what was tried


class HttpRequest:
    """One HTTP request, and what is known of it so far."""

    __slots__ = (
        "_in_flight",
        "address",
        "body_taken",
        "connection",
        "head",
        "lease",
        "message",
        "receive",
        "send",
        "token",
        "token_id",
    )

    def __init__(self, receive: Receive, send: Send, in_flight: InFlight, connection: Any = None) -> None:
        self._in_flight = in_flight
        self.lease: Lease | None = None  # of a large body, until the request is over
        self.token_id = ""  # of the caller by its headers; strangers share one share
        self.connection = connection  # what `protocol.py` keeps of it; None under another server
        self.receive = receive
        self.send = send
        self.head: Head = {}
        self.token: str | None = None  # for the audit of a refusal
        self.address: str | None = None  # the project in header or path
        self.message: Json | None = None
        self.body_taken = False

    def make_room(self, size: int) -> None:
        """For a large body. Raises HttpError 503."""
        self.lease = self._in_flight.request(self.token_id, size)
        if self.lease is None:
            raise no_room()


Serve = Callable[[Scope, HttpRequest, Claims], Awaitable[None]]
"""Answers a visit whose head is good. Raises HttpError, ClientDisconnectedError."""


class RequestReader:
    def __init__(
        self,
        gateway: Gateway,
        failures: Failures,
        limits: Limits,
        hosts: HostRules,
        full: Callable[[], bool],
        in_flight: InFlight,
    ) -> None:
        self._in_flight = in_flight
        self._gateway = gateway
        self._full = full
        self._failures = failures
        self.limits = limits
        self.hosts = hosts
        self.draining = False
        self.streams: list[OpenStreams] = []

    async def admit(self, scope: Scope, receive: Receive, send: Send, serve: Serve) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the front serves HTTP, not {scope['type']}")
        visit = HttpRequest(receive, send, self._in_flight, scope.get("connection"))
        try:
            try:
                await serve(scope, visit, self._claims(scope, visit))
            except HttpError as refusal:
                await self._refuse(scope["method"], visit, refusal)
        except ClientDisconnectedError:
            return
        except Exception as error:
            self._failures.report(scope["method"], error)
            await respond_refusal(send, HttpError(500, "Internal error", code=INTERNAL_ERROR), echoed_id(visit.message))
        finally:
            if visit.lease is not None:
                visit.lease.release()

    async def message(self, visit: HttpRequest, claims: Claims) -> tuple[Json, Caller]:
        """The message of a POST, and who sent it. Raises HttpError, ClientDisconnectedError."""
        caller = self._vouched(claims)
        check_content_type(visit.head)
        visit.body_taken = True
        if caller is not None:
            visit.token_id = caller.token_id
        body = await read_body(visit.head, visit.receive, self.limits.body_bytes, visit.make_room)
        try:
            message = visit.message = parse(body)
        except HttpError:
            if caller is None:
                self.identify(claims)  # without a token not even the reason is told
            raise
        completed = with_meta(claims, meta_of(message))
        if caller is None or completed is not claims:
            visit.token = completed.token
            caller = self.identify(completed)
        if visit.connection is not None:
            visit.connection.token_id = caller.token_id
        if self._full() and message.get("method") in LEGACY_METHODS:
            raise full()
        return message, caller

    def identify(self, claims: Claims) -> Caller:
        """Raises HttpError 401, 403."""
        try:
            return self._gateway.identify(claims.token, claims.project)
        except UnauthorizedError as error:
            raise unauthorized(str(error)) from None
        except ForbiddenError as error:
            raise denied(str(error)) from None

    def check_stream_share(self, caller: Caller) -> None:
        """Each open stream takes a connection, and one token must not take them all. Raises HttpError 429."""
        most = max(1, self.limits.connections // STREAM_SHARE)
        if sum(streams.count(caller.token_id) for streams in self.streams) >= most:
            raise too_many_streams(most)

    def _claims(self, scope: Scope, visit: HttpRequest) -> Claims:
        """Raises HttpError."""
        visit.head = checked_head(scope["headers"], self.hosts)
        if self.draining:
            raise overloaded("The gateway is shutting down. Try again in a moment.")
        path_params = scope.get("path_params")
        claims = claims_of(visit.head, path_params.get("id") if path_params else None)
        visit.token, visit.address = claims.token, claims.project
        return claims

    def _vouched(self, claims: Claims) -> Caller | None:
        """The caller by its headers alone; None where the body may still say more. Raises HttpError 401, 403."""
        if claims.token is None:
            return None
        try:
            return self._gateway.identify(claims.token, claims.project)
        except UnauthorizedError as error:
            raise unauthorized(str(error)) from None
        except ForbiddenError as error:
            if claims.project_stated:
                raise denied(str(error)) from None
            return None

    async def _refuse(self, verb: str, visit: HttpRequest, refusal: HttpError) -> None:
        """Raises ClientDisconnectedError."""
        if refusal.audited and verb == "POST":
            await self._report(visit, refusal.data["code"])
        await respond_refusal(visit.send, refusal, echoed_id(visit.message))

    async def _report(self, visit: HttpRequest, code: str) -> None:
        """Record the refused request. Reads the body if it was not read yet. Raises ClientDisconnectedError."""
        if not visit.body_taken:
            visit.message = await self._tried(visit)
        message = visit.message or {}
        params, method = message.get("params") or {}, message.get("method")
        info = params.get("clientInfo") or (params.get("_meta") or {}).get(CLIENT_INFO_META_KEY)
        self._gateway.refused(code, visit.token, method, params, client_name(info))

    async def _tried(self, visit: HttpRequest) -> Json | None:
        try:
            message = parse(await read_body(visit.head, visit.receive, _READ_FOR_AUDIT))
            with_meta(Claims(None, None, project_stated=False), meta_of(message))  # takes the secrets out
        except HttpError:
            return None
        return message
