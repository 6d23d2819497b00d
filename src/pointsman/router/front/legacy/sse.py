"""The HTTP+SSE transport of 2024-11-05: one stream carries all responses, and each message is POSTed on its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from pointsman.config.model import CurrentConfig
from pointsman.core.model import Caller, Json
from pointsman.core.seams import INVALID_REQUEST, Change, ProtocolError
from pointsman.router.front.exchange import Exchange
from pointsman.router.front.http.authentication import Claims, authenticate
from pointsman.router.front.http.body_parts import BodyParts
from pointsman.router.front.http.headers import check_accepts_stream
from pointsman.router.front.http.http_request import HttpRequest, RequestReader
from pointsman.router.front.http.responses import (
    error_message,
    event,
    method_not_allowed,
    result_message,
    too_many_sessions,
    unknown_session,
)
from pointsman.router.front.http.stream import EventStream, OpenStreams, forward_changes, serve_stream
from pointsman.router.front.legacy.endpoint import RULES, LegacyMethods, is_subscribed, notification
from pointsman.router.front.legacy.replay import EventStore, SessionEvents
from pointsman.router.front.legacy.sessions import Session
from pointsman.router.front.methods import initial_client, legacy_client
from pointsman.router.front.state import FrontState
from pointsman.router.front.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pointsman.router.front.carriage import Carriage

_UNINITIALIZED: Final = initial_client("", "", {})  # a client before its `initialize`
_INITIALIZE_FIRST: Final = "This session is not initialized. Send `initialize` first."
_INITIALIZED: Final = "This session is initialized already. Open another stream for another session."


class SseSession:
    """One session, which lasts as long as its stream."""

    __slots__ = ("session", "stream")

    def __init__(self, session: Session, stream: EventStream) -> None:
        self.session = session
        self.stream = stream

    def respond(self, message: bytes) -> None:
        self.stream.put(event(message), always=True)


class SseExchange(Exchange, eq=False, kw_only=True):
    """A request whose response goes to the session's stream; its POST was answered with 202."""

    sse: SseSession

    def _put(self, message: bytes) -> bool:
        return self.sse.stream.put(event(message))

    async def _write(self, status: int, response: bytes | BodyParts) -> None:
        self.sse.respond(bytes(response))

    def reachable(self) -> bool:
        return self.waiting  # it ends with the session's stream

    def watch(self) -> None:
        """Not needed: the stream pings, and the session ends with it."""


class SseTransport:
    def __init__(
        self,
        state: FrontState,
        methods: LegacyMethods,
        reader: RequestReader,
        current: CurrentConfig,
        check_stream_share: Callable[[Caller], None],
    ) -> None:
        """`check_stream_share` raises HttpError 429."""
        self._state = state
        self._methods = methods
        self._reader = reader
        self._current = current
        self._check_stream_share = check_stream_share
        self._sessions: dict[str, SseSession] = {}
        self._unused_store = EventStore(lambda: 0.0)  # this transport cannot resume
        self.streams = OpenStreams()
        self.carriage: Carriage | None = None  # to the other replicas

    def __len__(self) -> int:
        return len(self._sessions)

    async def serve_stream(self, http: HttpRequest, claims: Claims) -> None:
        """`GET /sse`. Raises HttpError."""
        if http.verb != "GET":
            raise method_not_allowed(b"GET")
        check_accepts_stream(http.head)
        caller = authenticate(self._state.gateway, claims)
        self._check_stream_share(caller)
        if len(self._sessions) >= self._current.config.limits.sessions:
            raise too_many_sessions()
        sse = self._open(caller, http)
        base = http.path.removesuffix("sse").encode("ascii", "ignore")  # project ids need no quoting
        sse.stream.put(b"event: endpoint\r\ndata: %bmessages/?session_id=%b\r\n\r\n" % (base, sse.session.id.encode()))
        try:
            await self._serve(sse, caller, http)
        except Exception as error:  # the response has begun, so no error can be sent
            self._state.failures.report("GET", error)

    async def serve_message(self, http: HttpRequest, claims: Claims) -> None:
        """`POST /messages/`. Raises HttpError, ClientDisconnectedError."""
        if http.verb != "POST":
            raise method_not_allowed(b"POST")
        message, caller = await self._reader.read_message(http, claims)
        session_id = parse_qs(http.query).get(b"session_id", [b""])[0].decode("latin-1")
        if self.carriage is not None and await self.carriage.sse_message(http, session_id):
            return
        sse = self._sessions.get(session_id)
        if sse is None or sse.session.caller.token_id != caller.token_id or sse.session.project != http.project:
            raise unknown_session()
        await http.respond(202)
        await self._handle(sse, message, caller, http)

    def _open(self, caller: Caller, http: HttpRequest) -> SseSession:
        events, subscriptions = SessionEvents(self._unused_store, primed=False), Subscriptions(self._state)
        replica = self._state.replica
        session_id = f"{replica}.{secrets.token_hex(20)}" if replica else secrets.token_hex(20)
        session = Session(session_id, caller, http.project, _UNINITIALIZED, 0.0, events, subscriptions)
        return SseSession(session, EventStream(http.send, self._state.ping_s, self._state.unread))

    async def _serve(self, sse: SseSession, caller: Caller, http: HttpRequest) -> None:
        session, stream = sse.session, sse.stream

        def notify(change: Change) -> bool:
            return not is_subscribed(session, change) or stream.put(event(notification(change)))

        self._sessions[session.id] = sse
        with self.streams.track(caller) as ended:
            try:
                feed = forward_changes(self._state.gateway.changes(caller), notify, ended)
                await serve_stream(stream, http.receive, stream.close, feed)
            finally:
                del self._sessions[session.id]
                session.close()

    async def _handle(self, sse: SseSession, message: Json, caller: Caller, http: HttpRequest) -> None:
        """The POST is answered, so errors go to the stream."""
        session, method = sse.session, message.get("method")
        if method is None:
            session.questions.resolve(message)
        elif "id" not in message:
            self._methods.notify(session, method, message.get("params") or {})
        elif method == "initialize":
            await self._initialize(sse, message, caller, http)
        elif session.client is _UNINITIALIZED and method != "ping":
            sse.respond(error_message(message["id"], INVALID_REQUEST, _INITIALIZE_FIRST))
        else:
            exchange = SseExchange(self._state, message["id"], http, RULES, session, sse=sse)
            await self._methods.run(session, message, caller, exchange)

    async def _initialize(self, sse: SseSession, message: Json, caller: Caller, http: HttpRequest) -> None:
        if sse.session.client is not _UNINITIALIZED:
            sse.respond(error_message(message["id"], INVALID_REQUEST, _INITIALIZED))
            return
        try:
            client = legacy_client(message.get("params") or {})
        except ProtocolError as error:
            sse.respond(error_message(message["id"], error.code, error.message))
            return
        sse.session.client = client
        sse.respond(result_message(message["id"], await self._methods.initialize(http, client, caller)))
