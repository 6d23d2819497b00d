"""The entry: an ASGI app for `/mcp` and `/projects/{id}/mcp`. Checks come first, then who calls, then the era."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pointsman.config.model import Limits
from pointsman.core.model import Json
from pointsman.core.sdk import HANDSHAKE_PROTOCOL_VERSIONS, SERVER_INFO_META_KEY
from pointsman.core.seams import Gateway
from pointsman.router.front.http.failures import Clock
from pointsman.router.front.http.headers import HostRules, check_accepts_answers, check_accepts_stream
from pointsman.router.front.http.http_request import HttpRequest, RequestReader
from pointsman.router.front.http.identity import Claims
from pointsman.router.front.http.refusal import wrong_verb
from pointsman.router.front.http.unread import UnreadBudget
from pointsman.router.front.legacy.endpoint import LegacyEra
from pointsman.router.front.legacy.methods import LegacyMethods
from pointsman.router.front.legacy.session_ids import SessionIds
from pointsman.router.front.legacy.sessions import Sessions
from pointsman.router.front.legacy.sse import SseTransport
from pointsman.router.front.modern.endpoint import ModernEra
from pointsman.router.front.modern.listen import Listening
from pointsman.router.front.modern.parking import Parking
from pointsman.router.front.modern.request_state import Seal, WallClock
from pointsman.router.front.open_streams import OpenStreams
from pointsman.router.front.state import FrontState, Instructions
from pointsman.router.front.subscriptions import Subscriptions
from pointsman.router.serving.in_flight import InFlight

_LEGACY_VERSIONS = frozenset({None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)})
_LOOK_EVERY_S = 0.5  # after tokens that hold no more
_CANCEL_S = 2.0  # for cancelled calls to end


class Front:
    """Mount it as the endpoint of a route; `run` beside it; `drain` before the end."""

    def __init__(
        self,
        gateway: Gateway,
        limits: Limits,
        hosts: HostRules,
        *,
        server_info: Json,
        instructions: Instructions = lambda caller: None,
        request_keys: Sequence[str] = (),
        clock: Clock = time.monotonic,
        wall_clock: WallClock = time.time,
        ping_s: float = 15.0,
        resume_s: float = 10.0,
        full: Callable[[], bool] = lambda: False,
        in_flight: InFlight | None = None,
    ) -> None:
        """`request_keys`: see `router.serving.request_keys`. Without any, nothing that clients carry outlives this one.

        `full`: whether the gateway takes no more requests at the moment. `in_flight`: what large bodies are counted in.
        """
        keys = tuple(request_keys) or (secrets.token_hex(32),)
        self._gateway = gateway
        self.unread = UnreadBudget(lambda: self._reception.limits.unread_bytes)
        desk = self._desk = FrontState(gateway, server_info, instructions, clock, ping_s, resume_s, self.unread)
        self._reception = RequestReader(
            gateway, desk.failures, limits, hosts, full, in_flight or InFlight(lambda: self.limits.in_flight_bytes)
        )
        self._streams = OpenStreams()
        self._sessions = Sessions(
            clock,
            limits.sessions,
            limits.session_idle_s,
            SessionIds(keys, wall_clock),
            lambda: Subscriptions(desk),
        )
        self._parking = Parking(
            desk,
            Seal(keys, "pointsman", wall_clock),
            {SERVER_INFO_META_KEY: server_info},
            limits.parked,
            limits.parked_s,
        )
        methods = LegacyMethods(desk)
        check_share = self._reception.check_stream_share
        self._legacy = LegacyEra(desk, methods, self._sessions, self._streams, check_share)
        self._modern = ModernEra(desk, self._parking, Listening(desk, self._streams, check_share))
        self._sse = SseTransport(desk, methods, self._reception)
        self._reception.streams = [self._streams, self._sse.streams]

    def configure(self, limits: Limits, hosts: HostRules) -> None:
        """Take over new limits and names. What is open stays open."""
        self._reception.limits = limits
        self._reception.hosts = hosts
        self._sessions.most = limits.sessions
        self._sessions.idle_s = limits.session_idle_s
        self._parking.most = limits.parked
        self._parking.wait_s = limits.parked_s

    def sse_routes(self) -> list[Route]:
        """`/sse` and `/messages/`, also below `/projects/{id}`."""
        return self._sse.routes()

    @property
    def limits(self) -> Limits:
        return self._reception.limits

    @property
    def hosts(self) -> HostRules:
        return self._reception.hosts

    @property
    def sessions_open(self) -> int:
        return len(self._sessions) + len(self._sse)

    @property
    def calls_parked(self) -> int:
        return len(self._parking)

    @property
    def calls_running(self) -> int:
        return len(self._desk.running)

    async def run(self) -> None:
        """End what has lost its token's consent, and let go of sessions that nobody uses, until cancelled."""
        while True:
            await asyncio.sleep(min(_LOOK_EVERY_S, self._sessions.idle_s / 2))
            try:
                self._end_refused()
                self._sessions.reap()
            except Exception as error:  # this must go on whatever happens
                self._desk.failures.report("housekeeping", error)

    async def drain(self, grace_s: float) -> None:
        """Refuse what is new, end the streams, let calls finish for `grace_s`, then cancel them."""
        self._reception.draining = self._desk.stopping = True
        self._streams.end_all()
        self._parking.end_all()  # nobody could answer them any more
        await self._desk.idle(grace_s)
        self._desk.cancel_all()
        await self._desk.idle(_CANCEL_S)
        self._sse.streams.end_all()  # not earlier: answers go there

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._reception.admit(scope, receive, send, self._serve)

    async def _serve(self, scope: Scope, visit: HttpRequest, claims: Claims) -> None:
        """Raises HttpError, ClientDisconnectedError."""
        legacy = visit.head.get(b"mcp-protocol-version") in _LEGACY_VERSIONS
        verb = scope["method"]
        if verb == "POST":
            check_accepts_answers(visit.head)
            message, caller = await self._reception.message(visit, claims)
            if legacy:
                await self._legacy.post(visit.head, message, caller, visit.address, visit.receive, visit.send)
            else:
                await self._modern.post(visit.head, message, caller, visit.receive, visit.send)
        elif verb in ("GET", "DELETE") and legacy:
            await self._session_verb(verb, visit, claims)
        else:
            raise wrong_verb(b"GET, POST, DELETE" if legacy else b"POST")

    async def _session_verb(self, verb: str, visit: HttpRequest, claims: Claims) -> None:
        if verb == "GET":
            check_accepts_stream(visit.head)
        if not claims.project_stated and b"mcp-session-id" in visit.head:
            claims = Claims(claims.token, self._legacy.project_of(visit.head), project_stated=False)
        caller = self._reception.identify(claims)
        if verb == "GET":
            await self._legacy.get(visit.head, caller, visit.address, visit.receive, visit.send)
        else:
            await self._legacy.delete(visit.head, caller, visit.address, visit.send)

    def _end_refused(self) -> None:
        parts = (self._streams, self._sse.streams, self._parking)
        callers = {caller for part in parts for caller in part.callers()}
        refused = {caller for caller in callers if not self._gateway.still_valid(caller)}
        for part in parts if refused else ():
            part.end(refused.__contains__)
