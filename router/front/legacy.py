"""The legacy era, 2024-11-05 to 2025-11-25: a handshake opens a session, and requests come in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Send

from pointsman.catalog.model import Caller, Json
from pointsman.router.front.answers import event, respond, result_message
from pointsman.router.front.checks import Head
from pointsman.router.front.desk import Desk
from pointsman.router.front.exchange import EraRules, Exchange
from pointsman.router.front.message import meta_of
from pointsman.router.front.methods import LEGACY_METHODS, log_level, method_not_found, progress_token
from pointsman.router.front.refusal import Refusal, overloaded, unknown_session
from pointsman.router.front.sessions import Session, Sessions, TooManySessions
from pointsman.router.front.stream import serve_stream
from pointsman.router.sdk import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    HEADER_MISMATCH,
    LATEST_HANDSHAKE_VERSION,
    PROTOCOL_VERSION_META_KEY,
)
from pointsman.router.seams import INVALID_PARAMS, Change, Client, FrontRequest
from pointsman.router.wire import encode

_RULES = EraRules(leaving_cancels=False, error_status={})  # a legacy client may leave and still want its call to run
_MODERN_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope"})
_LONGEST_NAME = 128
_MOST_CAPABILITIES = 4096  # bytes; a session keeps them, and a thousand sessions must stay small


class LegacyEra:
    def __init__(self, desk: Desk, sessions: Sessions) -> None:
        self._desk = desk
        self._sessions = sessions

    async def post(
        self, head: Head, message: Json, caller: Caller, address: str | None, receive: Receive, send: Send
    ) -> None:
        """Raises Refusal 400, 404, 503."""
        method = message.get("method")
        meta = meta_of(message)
        if meta and PROTOCOL_VERSION_META_KEY in meta and method != "initialize":
            raise Refusal(
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
            self._notice(session, method, message.get("params") or {})
            await self._accept(session, send)
        elif method == "initialize":
            raise Refusal(400, "This session is initialized already. Leave out Mcp-Session-Id to open another one.")
        else:
            await self._request(session, message, caller, receive, send)

    async def get(self, head: Head, caller: Caller, address: str | None, receive: Receive, send: Send) -> None:
        """The stream of changes; a new one takes the place of the old one. Raises Refusal 400, 404."""
        session = self._session(head, caller, address)
        session.end_stream()
        ended = session.stream = asyncio.get_running_loop().create_future()
        changes = self._desk.gateway.changes(caller)
        try:
            await serve_stream(receive, send, changes, _as_event, ended, self._desk.ping_s)
        except Exception as error:  # the stream has ended properly; it cannot be answered once more
            self._desk.failures.report("GET", error)
        finally:
            if session.stream is ended:
                session.stream = None
            self._sessions.touch(session)

    async def delete(self, head: Head, caller: Caller, address: str | None, send: Send) -> None:
        """Raises Refusal 400, 404."""
        self._sessions.end(self._session(head, caller, address))
        await respond(send, 200)

    def project_of(self, head: Head) -> str | None:
        """The project of the session that is meant: GET and DELETE have no `_meta` to name it in."""
        session = self._sessions.find(_session_id(head))
        return session.caller.project_id if session is not None else None

    def _session(self, head: Head, caller: Caller, address: str | None) -> Session:
        session = self._sessions.find(_session_id(head))
        if session is None or session.caller.token_id != caller.token_id or session.address != address:
            raise unknown_session()
        return session

    async def _initialize(self, message: Json, caller: Caller, address: str | None, send: Send) -> None:
        client = _introduced(message.get("params") or {})
        result: Json = {
            "protocolVersion": client.version,
            "capabilities": self._desk.gateway.capabilities(caller, "legacy"),
            "serverInfo": self._desk.server_info,
        }
        if self._desk.instructions is not None:
            result["instructions"] = self._desk.instructions
        body = result_message(message["id"], result)
        try:
            session = self._sessions.open(caller, address, client)
        except TooManySessions:
            raise overloaded("Too many sessions are open. Try again later.") from None
        await respond(send, 200, body, ((b"mcp-session-id", session.id.encode()),))

    async def _accept(self, session: Session, send: Send) -> None:
        self._sessions.touch(session)
        await respond(send, 202)

    def _notice(self, session: Session, method: str, params: Json) -> None:
        if method != "notifications/cancelled":
            return  # `initialized` and the like: nothing here waits for them
        client_id = params.get("requestId")
        if type(client_id) is int or type(client_id) is str:
            session.cancel(client_id)

    async def _request(self, session: Session, message: Json, caller: Caller, receive: Receive, send: Send) -> None:
        client_id, method = message["id"], message["method"]
        exchange = Exchange(self._desk, client_id, receive, send, _RULES, session)
        same_id = session.calls.setdefault(client_id, [])
        same_id.append(exchange)
        try:
            await exchange.run(method, self._work(session, method, message.get("params") or {}, caller, exchange))
        finally:
            same_id.remove(exchange)
            if not same_id:
                del session.calls[client_id]
            self._sessions.touch(session)

    async def _work(self, session: Session, method: str, params: Json, caller: Caller, exchange: Exchange) -> Json:
        """Raises ProtocolError."""
        check = LEGACY_METHODS.get(method)
        if check is not None:
            check(params)
            client = session.client
            token = progress_token(params.get("_meta"))
            if token is not None:
                client = replace(client, progress_token=token)
            request = FrontRequest(self._desk.new_id(), method, params, caller, client)
            return as_legacy(await self._desk.gateway.handle(request, exchange))
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            session.client = replace(session.client, log_level=log_level(params.get("level"), "level"))
            return {}
        raise method_not_found()


def as_legacy(result: Json) -> Json:
    """Without what only the modern era knows. The result may be shared, so it is copied where it changes."""
    content = result.get("structuredContent")
    illegal = content is not None and type(content) is not dict
    if not illegal and _MODERN_FIELDS.isdisjoint(result):
        return result
    return {
        key: value
        for key, value in result.items()
        if key not in _MODERN_FIELDS and not (illegal and key == "structuredContent")
    }


def _as_event(change: Change) -> bytes:
    return event(encode({"jsonrpc": "2.0", "method": change.method, "params": change.params}))


def _session_id(head: Head) -> str:
    given = head.get(b"mcp-session-id")
    if given is None:
        raise Refusal(400, "The Mcp-Session-Id header is missing. Open a session with `initialize`.")
    return given.decode("latin-1")


def _introduced(params: Json) -> Client:
    """The client as its `initialize` describes it. Raises Refusal 400."""
    asked, capabilities, info = params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo")
    if type(asked) is not str or type(capabilities) is not dict or type(info) is not dict:
        raise Refusal(
            400,
            "`initialize` needs `protocolVersion` (a string), `capabilities` and `clientInfo` (objects).",
            code=INVALID_PARAMS,
        )
    if len(encode(capabilities)) > _MOST_CAPABILITIES:
        raise Refusal(400, "`capabilities` is too large.", code=INVALID_PARAMS)
    return Client(
        name=client_name(info),
        era="legacy",
        version=asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        capabilities=capabilities,
        progress_token=None,
        log_level="info",
    )


def client_name(info: Any) -> str:
    name = info.get("name") if type(info) is dict else None
    return name[:_LONGEST_NAME] if type(name) is str else ""
