"""The front's entry, an ASGI app: admits a request, reads it, and passes it to the endpoint of its era."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send

from pointsman.config.model import CurrentConfig
from pointsman.core.model import Caller, Json
from pointsman.core.sdk import HANDSHAKE_PROTOCOL_VERSIONS, SERVER_INFO_META_KEY
from pointsman.core.seams import Gateway, Tracer
from pointsman.router.front.http.authentication import Claims, authenticate, verify
from pointsman.router.front.http.connections import is_exempt
from pointsman.router.front.http.direct_cycle import DirectCycle
from pointsman.router.front.http.headers import USUAL_ACCEPT, HostRules, check_accepts_responses, check_accepts_stream
from pointsman.router.front.http.http_request import HttpRequest, RequestReader, echoed_id
from pointsman.router.front.http.responses import (
    ClientDisconnectedError,
    HttpError,
    internal_error,
    method_not_allowed,
    respond,
    too_many_streams,
)
from pointsman.router.front.http.stream import OpenStreams
from pointsman.router.front.http.unread import UnreadBudget
from pointsman.router.front.legacy.endpoint import LegacyEndpoint, LegacyMethods
from pointsman.router.front.legacy.sessions import SessionIds, Sessions
from pointsman.router.front.legacy.sse import SseTransport
from pointsman.router.front.modern.endpoint import ModernEndpoint
from pointsman.router.front.modern.listen import Listeners
from pointsman.router.front.modern.parked_calls import ParkedCalls
from pointsman.router.front.modern.request_state import Seal
from pointsman.router.front.state import Clock, FrontState, Instructions, WallClock, no_instructions
from pointsman.router.front.subscriptions import Subscriptions
from pointsman.router.serving.in_flight import InFlight

if TYPE_CHECKING:
    from starlette.routing import Route  # imported with the other paths

    from pointsman.router.auth.sign_in import SignIn
    from pointsman.router.front.carriage import Carriage
    from pointsman.router.front.http.responses import Headers
    from pointsman.router.peers.peers import Peers

STREAM_SHARE = 4  # one token's streams take at most this fraction of the connections
_LEGACY_VERSIONS = frozenset({None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)})
_REVIEW_S = 0.5  # between checks for revoked tokens
_CANCEL_S = 2.0  # for cancelled calls to end


class Front:
    """The outermost ASGI app: serves `/mcp` itself and passes other paths to `other_paths`.

    Starlette's routing and middleware would add a quarter to the cost of a call. `run` it as a task; `drain` it before
    the daemon ends.
    """

    def __init__(
        self,
        gateway: Gateway,
        current: CurrentConfig,
        hosts: HostRules,
        *,
        server_info: Json,
        instructions: Instructions = no_instructions,
        request_keys: Sequence[str] = (),
        clock: Clock = time.monotonic,
        wall_clock: WallClock = time.time,
        ping_s: float = 15.0,
        resume_s: float = 10.0,
        full: Callable[[], bool] = lambda: False,
        in_flight: InFlight | None = None,
        peers: Peers | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`current`: its `limits` are read.

        `request_keys`: see `router.serving.request_keys`; without any, sealed session ids and request states end with
        this process. `full`: whether the gateway is at capacity. `in_flight`: the budget for large bodies. `peers`: the
        other replicas of this gateway, if there are any. `tracer`: traces requests, if they are to be traced.
        """
        keys = tuple(request_keys) or (secrets.token_hex(32),)
        self._gateway = gateway
        self._current = current
        self._in_flight = in_flight or InFlight(lambda: current.config.limits.in_flight_bytes)
        self.unread = UnreadBudget(lambda: current.config.limits.unread_bytes)
        self.other_paths: ASGIApp | None = None
        replica = peers.own.id if peers is not None else ""
        state = FrontState(gateway, server_info, instructions, clock, ping_s, resume_s, self.unread, replica, tracer)
        self._state = state
        self._reader = RequestReader(gateway, current, hosts, full)
        self._streams = OpenStreams()
        ids = SessionIds(keys, wall_clock, replica)
        self._sessions = Sessions(clock, current, ids, lambda: Subscriptions(state), replica)
        self._parked = ParkedCalls(
            state, current, Seal(keys, "pointsman", wall_clock), {SERVER_INFO_META_KEY: server_info}
        )
        methods, check_share = LegacyMethods(state), self._check_stream_share
        self._legacy = LegacyEndpoint(state, methods, self._sessions, self._streams, check_share)
        self._modern = ModernEndpoint(state, self._parked, Listeners(state, self._streams, check_share))
        self._sse = SseTransport(state, methods, self._reader, current, check_share)
        self._peers = self._reader.peers = peers
        self._carriage: Carriage | None = None
        if peers is not None:
            from pointsman.router.front.carriage import Carriage

            self._carriage = self._sse.carriage = Carriage(peers, self._sessions, self._parked)

    def routes(self) -> list[Route]:
        """Return the routes of the front for `other_paths`: `/projects/{id}/mcp`, and `/sse` and `/messages/`."""
        from starlette.routing import Route

        sse = [f"{project}{path}" for project in ("", "/projects/{id}") for path in ("/sse", "/messages/")]
        return [Route(path, self) for path in ("/projects/{id}/mcp", *sse)]

    @property
    def hosts(self) -> HostRules:
        return self._reader.hosts

    @hosts.setter
    def hosts(self, hosts: HostRules) -> None:
        self._reader.hosts = hosts

    @property
    def sign_in(self) -> SignIn | None:
        """How callers sign in; None: they cannot, and only tokens of the YAML are accepted."""
        return self._reader.sign_in

    @sign_in.setter
    def sign_in(self, sign_in: SignIn | None) -> None:
        self._reader.sign_in = sign_in

    def headers_of(self, error: HttpError, path: str, *, token_sent: bool) -> Headers:
        """The headers of an error, with a challenge that says where to sign in."""
        sign_in = self._reader.sign_in
        if sign_in is None or not (error.status == 401 or error.scopes):
            return error.headers
        challenge = sign_in.resources.challenge(path, token_sent=token_sent, scopes=error.scopes)
        others = tuple(header for header in error.headers if header[0] != b"www-authenticate")
        return (*others, (b"www-authenticate", challenge))

    def is_exempt(self, host: str) -> bool:
        """Whether a host is exempt from the limit of connections per address: many clients may be behind it."""
        exempt = is_exempt(host, self.hosts.trusted_proxies)
        return exempt or (self._peers is not None and self._peers.has_host(host))

    @property
    def sessions(self) -> Sessions:
        return self._sessions

    @property
    def sessions_open(self) -> int:
        return len(self._sessions) + len(self._sse)

    @property
    def calls_parked(self) -> int:
        return len(self._parked)

    @property
    def calls_running(self) -> int:
        return len(self._state.running)

    def log_ids(self) -> Mapping[str, str]:
        """Return the ids of the request whose task logs at this moment; empty: the line belongs to none."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return {}  # another thread logs
        # A search, because lines are rare and calls are not: a call pays nothing for it.
        return next((one.log_ids() for one in self._state.running if one.runs_in(task)), {})

    async def run(self) -> None:
        """End the streams and parked calls of revoked tokens, and close unused sessions, until cancelled."""
        while True:
            await asyncio.sleep(min(_REVIEW_S, self._current.config.limits.session_idle_s / 2))
            try:
                self._end_revoked()
                self._sessions.reap()
            except Exception as error:  # the next round must run in any case
                self._state.failures.report("housekeeping", error)

    async def drain(self, grace_s: float) -> None:
        """Refuse new requests, end the streams, let calls finish for `grace_s`, then cancel them."""
        self._reader.draining = self._state.stopping = True
        self._streams.end_all()
        if self._peers is not None:
            self._peers.end_streams()
        self._parked.end_all()  # they could no longer be answered
        await self._state.until_idle(grace_s)
        self._state.cancel_all()
        await self._state.until_idle(_CANCEL_S)
        self._sse.streams.end_all()  # last, because they carry responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request to a path of the front; answer every error."""
        if scope["type"] != "http" or (scope["path"] != "/mcp" and scope.get("endpoint") is not self):
            if self.other_paths is None:
                raise RuntimeError(f"the front serves /mcp, not {scope['type']} {scope.get('path', '')}")
            await self.other_paths(scope, receive, send)
            return
        path_params = scope.get("path_params")
        http = HttpRequest(
            verb=scope["method"],
            path=scope["path"],
            headers=scope["headers"],
            receive=receive,
            send=send,
            respond=partial(respond, send),
            in_flight=self._in_flight,
            connection=scope.get("connection"),
            path_project=path_params.get("id") if path_params else None,
            query=scope["query_string"],
        )
        await self._serve_or_answer(http)

    def serve_post(self, cycle: DirectCycle) -> Coroutine[Any, Any, None]:
        """Serve a POST of `/mcp` that comes straight from the protocol; answer every error."""
        asgi: Any = cycle  # uvicorn types its messages more narrowly than ASGI does
        http = HttpRequest(
            verb="POST",
            path="/mcp",
            headers=cycle.headers,
            receive=asgi.receive,
            send=asgi.send,
            respond=cycle.respond,
            in_flight=self._in_flight,
            connection=cycle.connection,
            small_body=cycle.small_body,
            head=cycle.head,
        )
        return self._serve_or_answer(http)

    async def _serve_or_answer(self, http: HttpRequest) -> None:
        try:
            carriage = self._carriage
            if carriage is not None:
                carriage.admit(http)
            claims = self._reader.read_head(http)
            if self._reader.sign_in is not None and http.caller is None:
                await verify(self._reader.sign_in, claims.token)
            legacy = http.head.get(b"mcp-protocol-version") in _LEGACY_VERSIONS
            if http.verb != "POST" or not http.path.endswith("/mcp"):
                await self._serve_other(http, claims, legacy)
                return
            if http.head.get(b"accept") != USUAL_ACCEPT:
                check_accepts_responses(http.head)
            message, caller = await self._reader.read_message(http, claims)
            if carriage is not None and await carriage.post(http, message, caller, legacy=legacy):
                return
            await (self._legacy if legacy else self._modern).post(http, message, caller)
        except ClientDisconnectedError:
            return
        except Exception as error:
            await self._respond_failure(http, error)
        finally:
            if http.lease is not None:
                http.lease.release()

    async def _serve_other(self, http: HttpRequest, claims: Claims, legacy: bool) -> None:
        """Serve a request that is no POST of `/mcp`. Raises HttpError, ClientDisconnectedError."""
        if http.path.endswith("/sse"):
            await self._sse.serve_stream(http, claims)
        elif http.path.endswith("/messages/"):
            await self._sse.serve_message(http, claims)
        elif http.verb in ("GET", "DELETE") and legacy:
            await self._serve_session(http, claims)
        else:
            raise method_not_allowed(b"GET, POST, DELETE" if legacy else b"POST")

    async def _serve_session(self, http: HttpRequest, claims: Claims) -> None:
        """GET and DELETE of a legacy session. Raises HttpError."""
        carriage, opens = self._carriage, http.verb == "GET"
        if opens:
            check_accepts_stream(http.head)
        caller = self._authenticate_session(http, claims)
        if carriage is not None and await (carriage.get(http) if opens else carriage.delete(http)):
            return
        if opens:
            await self._legacy.get(http, caller)
            return
        self._legacy.end_session(http, caller)
        if carriage is not None:
            await carriage.tell_deleted(http)
        await http.respond(200)

    async def _respond_failure(self, http: HttpRequest, error: Exception) -> None:
        try:
            if isinstance(error, HttpError):
                if error.audited and http.verb == "POST":
                    await self._reader.record_refusal(http, error)
                headers = self.headers_of(error, http.path, token_sent=http.token is not None)
                await http.respond(error.status, error.body(echoed_id(http.message)), headers)
                return
        except ClientDisconnectedError:
            return
        except Exception as unexpected:
            error = unexpected
        self._state.failures.report(http.verb, error)
        internal = internal_error()
        await http.respond(internal.status, internal.body(echoed_id(http.message)))

    def _authenticate_session(self, http: HttpRequest, claims: Claims) -> Caller:
        """Raises HttpError 400, 401, 403."""
        claims = self._legacy.claims_of_session(claims, http.head)
        try:
            return authenticate(self._gateway, claims)
        except HttpError as error:
            if error.status == 403 and self._carriage is not None and self._carriage.is_elsewhere(http):
                return Caller("", None)  # the token is known; the replica that has the session knows its project
            raise

    def _check_stream_share(self, caller: Caller) -> None:
        """Each stream takes a connection, and no token may take them all. Raises HttpError 429."""
        most = max(1, self._current.config.limits.connections // STREAM_SHARE)
        if self._streams.count(caller.token_id) + self._sse.streams.count(caller.token_id) >= most:
            raise too_many_streams(most)

    def _end_revoked(self) -> None:
        parts = (self._streams, self._sse.streams, self._parked)
        callers = {caller for part in parts for caller in part.callers()}
        revoked = {caller for caller in callers if not self._gateway.still_valid(caller)}
        for part in parts if revoked else ():
            part.end(revoked.__contains__)
