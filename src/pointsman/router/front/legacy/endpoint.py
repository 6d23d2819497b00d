"""The legacy era, 2024-11-05 to 2025-11-25, on one path: a handshake opens a session, and requests come in it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive, Send

from pointsman.core.model import Caller, Json
from pointsman.core.sdk import HEADER_MISMATCH, PROTOCOL_VERSION_META_KEY
from pointsman.core.seams import ProtocolError
from pointsman.router.front.client_info import legacy_client
from pointsman.router.front.exchange import EraRules, Exchange
from pointsman.router.front.http.answers import respond, result_message
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.message import meta_of
from pointsman.router.front.http.refusal import HttpError, overloaded, unknown_session
from pointsman.router.front.legacy.methods import LegacyMethods, wanted
from pointsman.router.front.legacy.replay import CHANGES, EventLog, ReplayGapError
from pointsman.router.front.legacy.resume import serve_changes, serve_rest
from pointsman.router.front.legacy.sessions import Session, Sessions, TooManySessionsError
from pointsman.router.front.open_streams import OpenStreams
from pointsman.router.front.state import FrontState

RULES = EraRules(leaving_cancels=False, error_status={})  # a legacy client may leave and still want its call to run


class LegacyEra:
    def __init__(
        self,
        desk: FrontState,
        methods: LegacyMethods,
        sessions: Sessions,
        streams: OpenStreams,
        check_share: Callable[[Caller], None],
    ) -> None:
        """`check_share` raises Refusal where a token has its share of streams."""
        self._desk = desk
        self._methods = methods
        self._sessions = sessions
        self._streams = streams
        self._check_share = check_share

    async def post(
        self, head: Head, message: Json, caller: Caller, address: str | None, receive: Receive, send: Send
    ) -> None:
        """Raises HttpError 400, 404, 503."""
        method = message.get("method")
        meta = meta_of(message)
        if meta and PROTOCOL_VERSION_META_KEY in meta and method != "initialize":
            raise HttpError(
                400, "The MCP-Protocol-Version header does not match the version in `_meta`.", code=HEADER_MISMATCH
            )
        if method == "initialize" and "id" in message and b"mcp-session-id" not in head:
            await self._initialize(message, caller, address, send)
            return
        session = self._session(head, caller, address)
        if method is None:
            session.questions.answered(message)
            await self._accept(session, send)
        elif "id" not in message:
            self._methods.notice(session, method, message.get("params") or {})
            await self._accept(session, send)
        elif method == "initialize":
            raise HttpError(400, "This session is initialized already. Leave out Mcp-Session-Id to open another one.")
        else:
            exchange = Exchange(self._desk, message["id"], receive, send, RULES, session, session.events)
            try:
                await self._methods.run(session, message, caller, exchange)
            finally:
                self._sessions.touch(session)

    async def get(self, head: Head, caller: Caller, address: str | None, receive: Receive, send: Send) -> None:
        """The stream of changes, or the rest of a request's stream. Raises HttpError 400, 404, 429."""
        session = self._session(head, caller, address)
        log, after = _place(session, head)
        if log.number == CHANGES:
            session.end_stream()  # a new stream takes the place of the old one
        self._check_share(caller)
        try:
            if log.number == CHANGES:
                await self._changes(session, caller, log, after, receive, send)
            else:
                assert after is not None
                await self._rest(caller, log, after, receive, send)
        except Exception as error:  # the stream has ended properly; it cannot be answered once more
            self._desk.failures.report("GET", error)
        finally:
            self._sessions.touch(session)

    async def delete(self, head: Head, caller: Caller, address: str | None, send: Send) -> None:
        """Raises HttpError 400, 404."""
        self._sessions.end(self._session(head, caller, address))
        await respond(send, 200)

    def project_of(self, head: Head) -> str | None:
        """The project of the session that is meant: GET and DELETE have no `_meta` to name it in."""
        return self._sessions.project_of(_session_id(head))

    def _session(self, head: Head, caller: Caller, address: str | None) -> Session:
        try:
            session = self._sessions.find(_session_id(head), caller.token_id, address)
        except TooManySessionsError:
            raise _full() from None
        if session is None:
            raise unknown_session()
        return session

    async def _initialize(self, message: Json, caller: Caller, address: str | None, send: Send) -> None:
        try:
            client = legacy_client(message.get("params") or {})
        except ProtocolError as error:
            raise HttpError(400, error.message, code=error.code) from None
        body = result_message(message["id"], self._methods.welcome(client, caller))
        try:
            session = self._sessions.open(caller, address, client)
        except TooManySessionsError:
            raise _full() from None
        await respond(send, 200, body, ((b"mcp-session-id", session.id.encode()),))

    async def _accept(self, session: Session, send: Send) -> None:
        self._sessions.touch(session)
        await respond(send, 202)

    async def _changes(
        self, session: Session, caller: Caller, log: EventLog, after: int | None, receive: Receive, send: Send
    ) -> None:
        with self._streams.entered(caller) as ended:
            session.stream = ended
            try:
                await serve_changes(
                    receive,
                    send,
                    log,
                    after,
                    self._desk.gateway.changes(caller),
                    lambda change: wanted(session, change),
                    ended,
                    self._desk.unread,
                    ping_s=self._desk.ping_s,
                    wait_s=self._desk.resume_s,
                )
            finally:
                if session.stream is ended:
                    session.stream = None

    async def _rest(self, caller: Caller, log: EventLog, after: int, receive: Receive, send: Send) -> None:
        desk = self._desk
        with self._streams.entered(caller):
            await serve_rest(receive, send, log, after, desk.unread, ping_s=desk.ping_s, wait_s=desk.resume_s)


def _place(session: Session, head: Head) -> tuple[EventLog, int | None]:
    """The stream that is meant, and the last event of it that the client has. Raises HttpError 400."""
    given = head.get(b"last-event-id")
    if given is None:
        return session.events.changes(), None
    try:
        return session.events.find(given.decode("latin-1")) or (session.events.changes(), None)
    except ReplayGapError:
        raise HttpError(400, "What followed this Last-Event-ID is kept no longer. Make the request again.") from None


def _full() -> HttpError:
    return overloaded("Too many sessions are open. Try again later.")


def _session_id(head: Head) -> str:
    given = head.get(b"mcp-session-id")
    if given is None:
        raise HttpError(400, "The Mcp-Session-Id header is missing. Open a session with `initialize`.")
    return given.decode("latin-1")
