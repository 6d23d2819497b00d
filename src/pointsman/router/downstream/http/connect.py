"""Opens a connection over HTTP: negotiates the era, then hands the client to the connection of that era."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from pointsman.config.model import Limits
from pointsman.core.model import Json
from pointsman.core.sdk import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pointsman.core.wire import encode
from pointsman.router.downstream.connection import (
    Authorizer,
    Call,
    Connection,
    ConnectionLostError,
    Introduction,
    OnNotification,
)
from pointsman.router.downstream.http.answer import read_result
from pointsman.router.downstream.http.client import HANDSHAKE_NUMBER, HttpClient
from pointsman.router.downstream.http.failures import status_reason
from pointsman.router.downstream.http.legacy import LegacyHttp, Session
from pointsman.router.downstream.http.modern import ModernHttp, modern_head
from pointsman.router.downstream.talk.handshake import WantedEra, negotiate
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.serving.in_flight import AnswerMemory


async def connect_http(
    url: str,
    headers: Mapping[str, str],
    era: WantedEra,
    probe_s: float,
    limits: Limits,
    on_notification: OnNotification,
    record: ServerRecord | None = None,
    memory: AnswerMemory | None = None,
    *,
    apps: bool = False,
    authorizer: Authorizer | None = None,
) -> Connection:
    """Connect and negotiate the version. The caller limits the total time.

    `record` is what the server was seen to do and `memory` the budget for its large answers; both outlive the
    connection. With `apps`, support for apps is declared. `authorizer` adds tokens to the requests.

    Raises:
        ConnectionLostError: with the reason. All connections are closed then, also after a cancellation.
    """
    try:
        client = HttpClient(url, headers, authorizer=authorizer)
    except ValueError:
        raise ConnectionLostError("its `url` is not valid: correct it in its configuration") from None
    try:
        wire = _HttpWire(client, limits)
        introduction = await negotiate(wire, era, probe_s, apps=apps)
    except BaseException:
        await client.close()
        raise
    if introduction.era == "modern":
        return ModernHttp(client, introduction, limits, on_notification, memory)

    async def open_session() -> Session:
        wire = _HttpWire(client, limits)
        return wire.session(await negotiate(wire, "legacy", probe_s, apps=apps))

    session = wire.session(introduction)
    return LegacyHttp(client, session, open_session, limits, on_notification, record or ServerRecord(), memory=memory)


class _HttpWire:
    """The `Wire` of a handshake over HTTP: sends each request with the headers of its era."""

    def __init__(self, client: HttpClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._version = LATEST_HANDSHAKE_VERSION
        self._session_id: str | None = None

    def session(self, introduction: Introduction) -> Session:
        return Session.of(self._client, introduction, self._session_id)

    async def request(self, call: Call) -> Json:
        modern = call.method == "server/discover"
        head = modern_head(self._client, LATEST_MODERN_VERSION, call.method) if modern else self._client.head("POST")
        body = encode({"jsonrpc": "2.0", "id": HANDSHAKE_NUMBER, "method": call.method, "params": call.params})
        response = await self._client.send(head, body)
        result = await read_result(response, HANDSHAKE_NUMBER, self._limits.result_bytes, _ignore)
        if not modern:
            self._version = str(result.get("protocolVersion"))
            self._session_id = response.text(b"mcp-session-id")
        return result

    async def notify(self, method: str, params: Json) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        named = {} if self._session_id is None else {"Mcp_Session_Id": self._session_id}
        head = self._client.head("POST", MCP_Protocol_Version=self._version, **named)
        response = await self._client.send(head, encode(message))
        response.close()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise ConnectionLostError(status_reason(response.status, method))


def _ignore(_: Json) -> None:
    """Drop what a server sends during the handshake: there is no client yet."""
