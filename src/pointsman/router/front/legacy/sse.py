"""The old HTTP+SSE transport of 2024-11-05: one stream carries all answers, and messages come by POSTs of their own."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final
from urllib.parse import parse_qs

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pointsman.core.model import Caller, Json
from pointsman.core.seams import INVALID_REQUEST, Change, ProtocolError
from pointsman.core.wire import encode
from pointsman.router.front.client_info import legacy_client
from pointsman.router.front.exchange import Exchange
from pointsman.router.front.http.answers import error_message, event, respond, result_message
from pointsman.router.front.http.headers import check_accepts_stream
from pointsman.router.front.http.http_request import HttpRequest, RequestReader, Serve
from pointsman.router.front.http.identity import Claims
from pointsman.router.front.http.refusal import overloaded, unknown_session, wrong_verb
from pointsman.router.front.http.stream import EventStream, forward, stop, until_left
from pointsman.router.front.legacy.endpoint import RULES
from pointsman.router.front.legacy.methods import LegacyMethods, wanted
from pointsman.router.front.legacy.replay import SessionEvents, Store
from pointsman.router.front.legacy.session_ids import introduced_before
from pointsman.router.front.legacy.sessions import Session
from pointsman.router.front.open_streams import OpenStreams
from pointsman.router.front.state import FrontState
from pointsman.router.front.subscriptions import Subscriptions

_STRANGER: Final = introduced_before("", "", {})  # a client before its `initialize`
_FIRST: Final = "Send `initialize` first."
_AGAIN: Final = "This session is initialized already."


class Line:
    """One session: it lasts as long as its stream."""

    __slots__ = ("session", "stream")

    def __init__(self, session: Session, stream: EventStream) -> None:
        self.session = session
        self.stream = stream

    def answer(self, message: bytes) -> None:
        self.stream.put(event(message), always=True)


class LineExchange(Exchange):
    """A request whose answer goes to the session's stream; the POST that brought it is answered already."""

    __slots__ = ("line",)
    line: Line

    def _put(self, message: bytes) -> bool:
        return self.line.stream.put(event(message))

    async def _write(self, status: int, answer: bytes) -> None:
        self.line.answer(answer)

    def _watch(self) -> None:
        """The stream pings, and the session ends with it."""


class SseTransport:
    def __init__(self, desk: FrontState, methods: LegacyMethods, reception: RequestReader) -> None:
        self._desk = desk
        self._methods = methods
        self._reception = reception
        self._lines: dict[str, Line] = {}
        self._nothing_kept = Store(lambda: 0.0)  # this transport cannot resume
        self.streams = OpenStreams()

    def __len__(self) -> int:
        return len(self._lines)

    def routes(self) -> list[Route]:
        stream, message = Way(self._reception, self._stream), Way(self._reception, self._message)
        return [
            Route(f"{project}{path}", app)
            for project in ("", "/projects/{id}")
            for path, app in (("/sse", stream), ("/messages/", message))
        ]

    async def _stream(self, scope: Scope, visit: HttpRequest, claims: Claims) -> None:
        """Raises HttpError."""
        if scope["method"] != "GET":
            raise wrong_verb(b"GET")
        check_accepts_stream(visit.head)
        caller = self._reception.identify(claims)
        self._reception.check_stream_share(caller)
        if len(self._lines) >= self._reception.limits.sessions:
            raise overloaded("Too many sessions are open. Try again later.")
        line = self._opened(caller, visit)
        base = scope["path"].removesuffix("sse")
        line.stream.put(b"event: endpoint\r\ndata: %bmessages/?session_id=%b\r\n\r\n" % (_path(base), _id(line)))
        try:
            await self._serve(line, caller, visit.receive)
        except Exception as error:  # the stream has begun; it cannot be answered once more
            self._desk.failures.report("GET", error)

    def _opened(self, caller: Caller, visit: HttpRequest) -> Line:
        events, subscriptions = SessionEvents(self._nothing_kept, primed=False), Subscriptions(self._desk)
        session_id = secrets.token_hex(20)
        session = Session(session_id, caller, visit.address, _STRANGER, 0.0, events, subscriptions)
        return Line(session, EventStream(visit.send, self._desk.ping_s, self._desk.unread))

    async def _serve(self, line: Line, caller: Caller, receive: Receive) -> None:
        session, stream = line.session, line.stream

        def say(change: Change) -> bool:
            if not wanted(session, change):
                return True
            return stream.put(event(encode({"jsonrpc": "2.0", "method": change.method, "params": change.params})))

        self._lines[session.id] = line
        writing = asyncio.ensure_future(stream.run())
        leaving = asyncio.ensure_future(until_left(receive))
        with self.streams.entered(caller) as ended:
            forwarding = asyncio.ensure_future(forward(self._desk.gateway.changes(caller), say, ended))
            try:
                await asyncio.wait((leaving, forwarding), return_when=asyncio.FIRST_COMPLETED)
                stream.close()
                await asyncio.wait((leaving, writing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                del self._lines[session.id]
                session.close()
                for task in (writing, leaving, forwarding):
                    await stop(task)
        if not forwarding.cancelled():
            forwarding.result()

    async def _message(self, scope: Scope, visit: HttpRequest, claims: Claims) -> None:
        """Raises HttpError, ClientDisconnectedError."""
        if scope["method"] != "POST":
            raise wrong_verb(b"POST")
        message, caller = await self._reception.message(visit, claims)
        named = parse_qs(scope["query_string"]).get(b"session_id", [b""])
        line = self._lines.get(named[0].decode("latin-1"))
        if line is None or line.session.caller.token_id != caller.token_id or line.session.address != visit.address:
            raise unknown_session()
        await respond(visit.send, 202)
        await self._take(line, message, caller, visit)

    async def _take(self, line: Line, message: Json, caller: Caller, visit: HttpRequest) -> None:
        """The POST is answered; from here on everything goes to the stream."""
        session, method = line.session, message.get("method")
        if method is None:
            session.questions.answered(message)
        elif "id" not in message:
            self._methods.notice(session, method, message.get("params") or {})
        elif method == "initialize":
            self._initialize(line, message, caller)
        elif session.client is _STRANGER and method != "ping":
            line.answer(error_message(message["id"], INVALID_REQUEST, _FIRST))
        else:
            exchange = LineExchange(self._desk, message["id"], visit.receive, visit.send, RULES, session)
            exchange.line = line
            await self._methods.run(session, message, caller, exchange)

    def _initialize(self, line: Line, message: Json, caller: Caller) -> None:
        if line.session.client is not _STRANGER:
            line.answer(error_message(message["id"], INVALID_REQUEST, _AGAIN))
            return
        try:
            client = legacy_client(message.get("params") or {})
        except ProtocolError as error:
            line.answer(error_message(message["id"], error.code, error.message))
            return
        line.session.client = client
        line.answer(result_message(message["id"], self._methods.welcome(client, caller)))


class Way:
    """An ASGI app for a route: the reception, then what is served there."""

    def __init__(self, reception: RequestReader, serve: Serve) -> None:
        self._reception = reception
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._reception.admit(scope, receive, send, self._serve)


def _path(base: str) -> bytes:
    """As it must be in a URL. Ids of projects need no quoting; others do not get this far."""
    return base.encode("ascii", "ignore")


def _id(line: Line) -> bytes:
    return line.session.id.encode()
