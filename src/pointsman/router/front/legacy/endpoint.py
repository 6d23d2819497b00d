"""The legacy era, 2024-11-05 to 2025-11-25, on one path: a handshake opens a session, and requests belong to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from pointsman.core.model import Caller, Json
from pointsman.core.sdk import HEADER_MISMATCH, PROTOCOL_VERSION_META_KEY
from pointsman.core.seams import Change, Client, FrontRequest, ProtocolError
from pointsman.core.wire import encode
from pointsman.router.front.exchange import EraRules, Exchange
from pointsman.router.front.http.authentication import Claims
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.http_request import HttpRequest
from pointsman.router.front.http.responses import (
    PING,
    HttpError,
    result_message,
    too_many_sessions,
    unknown_session,
)
from pointsman.router.front.http.stream import EventStream, OpenStreams, forward_changes, serve_stream
from pointsman.router.front.legacy.replay import CHANGES, EventLog, ReplayGapError
from pointsman.router.front.legacy.sessions import Session, Sessions, TooManySessionsError
from pointsman.router.front.methods import LEGACY_METHODS, legacy_client, log_level, method_not_found, progress_token
from pointsman.router.front.state import FrontState
from pointsman.router.front.subscriptions import SUBSCRIBE, UNSUBSCRIBE, UPDATED

RULES: Final = EraRules(disconnect_cancels=False, error_status={})  # a legacy client may disconnect and resume
_MODERN_FIELDS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_SUBSCRIBING: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE})


class LegacyMethods:
    """Handles the messages of a legacy session, whichever transport they arrive by."""

    def __init__(self, state: FrontState) -> None:
        self._state = state

    async def initialize(self, http: HttpRequest, client: Client, caller: Caller) -> Json:
        """Return the result of `initialize`."""
        if self._state.tracer is None:
            return await self._initialize(client, caller)
        span = self._state.tracer.begin(http.message or {}, http.head, caller)
        try:
            result = await self._initialize(client, caller)
        except BaseException as error:
            span.end(error)
            raise
        span.end(result)
        return result

    async def _initialize(self, client: Client, caller: Caller) -> Json:
        result: Json = {
            "protocolVersion": client.version,
            "capabilities": self._state.gateway.capabilities(caller, "legacy"),
            "serverInfo": self._state.server_info,
        }
        instructions = await self._state.instructions(caller)
        if instructions is not None:
            result["instructions"] = instructions
        return result

    def notify(self, session: Session, method: str, params: Json) -> None:
        """Handle a notification. Only cancellations have an effect."""
        if method != "notifications/cancelled":
            return
        client_id = params.get("requestId")
        if type(client_id) is int or type(client_id) is str:
            session.cancel(client_id)

    async def run(self, session: Session, message: Json, caller: Caller, exchange: Exchange) -> None:
        """Handle a request and write its response."""
        method, params = message["method"], message.get("params") or {}
        session.calls[exchange] = message["id"]
        try:
            await exchange.run(method, caller, self._handle(session, method, params, caller, exchange))
        finally:
            del session.calls[exchange]

    async def _handle(self, session: Session, method: str, params: Json, caller: Caller, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        check = LEGACY_METHODS.get(method)
        if check is not None:
            check(params)
            client, meta = session.client, params.get("_meta")
            token = progress_token(meta) if meta else None
            if token is not None:
                client = replace(client, progress_token=token)
            request = exchange.request = FrontRequest(
                next(self._state.request_ids), method, params, caller, client, exchange.span, session.id
            )
            if method in _SUBSCRIBING:
                return as_legacy(await session.subscriptions.handle(request, exchange))
            return as_legacy(await self._state.gateway.handle(request, exchange))
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            session.client = replace(session.client, log_level=log_level(params.get("level"), "level"))
            return {}
        raise method_not_found()


class LegacyEndpoint:
    """POST, GET and DELETE of `/mcp` with a legacy protocol version."""

    def __init__(
        self,
        state: FrontState,
        methods: LegacyMethods,
        sessions: Sessions,
        streams: OpenStreams,
        check_stream_share: Callable[[Caller], None],
    ) -> None:
        """`check_stream_share` raises HttpError 429."""
        self._state = state
        self._methods = methods
        self._sessions = sessions
        self._streams = streams
        self._check_stream_share = check_stream_share

    async def post(self, http: HttpRequest, message: Json, caller: Caller) -> None:
        """Raises HttpError 400, 404, 503."""
        method, params = message.get("method"), message.get("params")
        meta = params.get("_meta") if params else None
        if meta and PROTOCOL_VERSION_META_KEY in meta and method != "initialize":
            raise HttpError(
                400,
                "The MCP-Protocol-Version header does not match the version in `_meta`. Send the same in both.",
                code=HEADER_MISMATCH,
            )
        if method == "initialize" and "id" in message and b"mcp-session-id" not in http.head:
            await self._initialize(http, message, caller)
            return
        session = self._find_session(http, caller)
        if method is None:
            session.questions.resolve(message)
            await self._accept(session, http)
        elif "id" not in message:
            self._methods.notify(session, method, params or {})
            await self._accept(session, http)
        elif method == "initialize":
            raise HttpError(400, "This session is initialized already. Leave out Mcp-Session-Id to open another one.")
        else:
            exchange = Exchange(self._state, message["id"], http, RULES, session, session.events)
            try:
                await self._methods.run(session, message, caller, exchange)
            finally:
                self._sessions.touch(session)

    async def get(self, http: HttpRequest, caller: Caller) -> None:
        """Serve the session's changes, or resume the stream of a request. Raises HttpError 400, 404, 429."""
        session = self._find_session(http, caller)
        log, after = _find_log(session, http.head)
        if log.number == CHANGES:
            session.end_stream()  # a new stream replaces the old one
        self._check_stream_share(caller)
        try:
            if log.number == CHANGES:
                await self._serve_changes(http, session, caller, log, after)
            else:
                await self._resume(http, caller, log, after)
        except Exception as error:  # the response has begun, so no error can be sent
            self._state.failures.report("GET", error)
        finally:
            self._sessions.touch(session)

    def end_session(self, http: HttpRequest, caller: Caller) -> None:
        """Raises HttpError 400, 404, 503."""
        self._sessions.end(self._find_session(http, caller))

    def claims_of_session(self, claims: Claims, head: Head) -> Claims:
        """Add the project of the session: GET and DELETE have no `_meta` to state one in. Raises HttpError 400."""
        if claims.project_stated or b"mcp-session-id" not in head:
            return claims
        return Claims(claims.token, self._sessions.project_of(_session_id(head)), project_stated=False)

    def _find_session(self, http: HttpRequest, caller: Caller) -> Session:
        try:
            session = self._sessions.find(_session_id(http.head), caller.token_id, http.project)
        except TooManySessionsError:
            raise too_many_sessions() from None
        if session is None:
            raise unknown_session()
        return session

    async def _initialize(self, http: HttpRequest, message: Json, caller: Caller) -> None:
        try:
            client = legacy_client(message.get("params") or {})
        except ProtocolError as error:
            raise HttpError(400, error.message, code=error.code) from None
        body = result_message(message["id"], await self._methods.initialize(http, client, caller))
        try:
            session = self._sessions.open(caller, http.project, client)
        except TooManySessionsError:
            raise too_many_sessions() from None
        await http.respond(200, body, ((b"mcp-session-id", session.id.encode()),))

    async def _accept(self, session: Session, http: HttpRequest) -> None:
        self._sessions.touch(session)
        await http.respond(202)

    async def _serve_changes(
        self, http: HttpRequest, session: Session, caller: Caller, log: EventLog, after: int | None
    ) -> None:
        def notify(change: Change) -> bool:
            return not is_subscribed(session, change) or log.add(notification(change))

        with self._streams.track(caller) as ended:
            session.stream = ended
            try:
                stream = self._attach(http, log, after)
                log.prime()
                feed = forward_changes(self._state.gateway.changes(caller), notify, ended)
                resume_s = self._state.resume_s
                await serve_stream(stream, http.receive, lambda: log.detach(stream, resume_s), feed, resume_s)
            finally:
                if session.stream is ended:
                    session.stream = None

    async def _resume(self, http: HttpRequest, caller: Caller, log: EventLog, after: int | None) -> None:
        with self._streams.track(caller):
            stream = self._attach(http, log, after)
            await serve_stream(stream, http.receive, lambda: log.detach(stream, self._state.resume_s))

    def _attach(self, http: HttpRequest, log: EventLog, after: int | None) -> EventStream:
        stream = EventStream(http.send, self._state.ping_s, self._state.unread)
        stream.put(PING)  # sends the head, so that the client sees at once that the stream is open
        log.attach(stream, after)
        return stream


def is_subscribed(session: Session, change: Change) -> bool:
    """Return whether to notify this session: always of a changed list, of a resource if it subscribed to it."""
    return change.method != UPDATED or change.params.get("uri") in session.subscriptions


def notification(change: Change) -> bytes:
    return encode({"jsonrpc": "2.0", "method": change.method, "params": change.params})


def as_legacy(result: Json) -> Json:
    """Remove what only the modern era defines. Copies a result that it changes, because it may be shared."""
    content = result.get("structuredContent")
    illegal = content is not None and type(content) not in (dict, Raw)  # an object, decoded or not
    if not illegal and _MODERN_FIELDS.isdisjoint(result):
        return result
    legacy = result.copy()
    legacy.pop("resultType", None)
    legacy.pop("ttlMs", None)
    legacy.pop("cacheScope", None)
    if illegal:
        del legacy["structuredContent"]
    return legacy


def _find_log(session: Session, head: Head) -> tuple[EventLog, int | None]:
    """Return the stream to serve, and the last event of it that the client has. Raises HttpError 400."""
    given = head.get(b"last-event-id")
    if given is None:
        return session.events.changes(), None
    try:
        return session.events.find(given.decode("latin-1")) or (session.events.changes(), None)
    except ReplayGapError:
        raise HttpError(
            400, "The events after this Last-Event-ID are no longer stored. Make the request again."
        ) from None


def _session_id(head: Head) -> str:
    given = head.get(b"mcp-session-id")
    if given is None:
        raise HttpError(400, "The Mcp-Session-Id header is missing. Open a session with `initialize`.")
    return given.decode("latin-1")
