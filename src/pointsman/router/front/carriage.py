"""Decides for each message among replicas: served here, carried to the replica it refers to, or told to all.

Plain calls are served where they arrive. What refers to something that runs names its replica: the id of a question, of
an event, of an old SSE session and of a stored result begin with it, and it is sealed into session ids and the states
of parked calls.
"""

from __future__ import annotations

from typing import Final

from pointsman.core.model import Caller, Json
from pointsman.core.sdk import INPUT_REQUIRED_METHODS
from pointsman.core.seams import FrontRequest, ProtocolError
from pointsman.router.front.http.http_request import HttpRequest
from pointsman.router.front.http.responses import (
    not_from_a_replica,
    replica_lost,
    replica_refused,
    replica_unknown,
    unknown_session,
)
from pointsman.router.front.legacy.replay import is_of_changes
from pointsman.router.front.legacy.sessions import Sessions
from pointsman.router.front.methods import modern_client
from pointsman.router.front.modern.parked_calls import ParkedCalls
from pointsman.router.front.subscriptions import SUBSCRIBE, UNSUBSCRIBE
from pointsman.router.gateway.execute_parameters import result_handle
from pointsman.router.gateway.meta_tools import EXECUTE
from pointsman.router.peers.forwarding import LostError, RefusedError, UnreachableError
from pointsman.router.peers.peers import AT_ONCE_S, Peers
from pointsman.router.peers.replica import replica_in
from pointsman.router.peers.signing import ForgedError

_CALL: Final = "tools/call"
_CANCELLED: Final = "notifications/cancelled"
_SET_LEVEL: Final = "logging/setLevel"
_RESULT_S: Final = 15.0  # for a slice of a stored result, which may wait for its turn
_MOST_RESULT_CALL: Final = 64 << 10  # bytes of a request; more than reading a stored result takes
_AT_HOME: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE})


class Carriage:
    """Every method returns True where another replica has answered the request."""

    def __init__(self, peers: Peers, sessions: Sessions, parked: ParkedCalls) -> None:
        self._peers = peers
        self._sessions = sessions
        self._parked = parked

    def admit(self, http: HttpRequest) -> None:
        """Note whether another replica has sent the request on: then it is served here. Raises HttpError 403."""
        try:
            http.carried = self._peers.verified(http)
        except ForgedError:
            raise not_from_a_replica() from None

    async def post(self, http: HttpRequest, message: Json, caller: Caller, *, legacy: bool) -> bool:
        """Raises HttpError 404, 502, 503."""
        carry = self._legacy_post(http, message) if legacy else self._modern_post(http, message, caller)
        if await carry:
            return True
        http.body = b""  # it is decoded, and not needed again
        return False

    async def get(self, http: HttpRequest) -> bool:
        """A session's stream is at its home, that of a request where the request runs. Raises HttpError 404, 502."""
        session_id = _session_id(http)
        if http.carried is not None or session_id is None:
            return False
        if at := replica_in(session_id):
            return await self._carry_session(at, http)
        event_id = http.head.get(b"last-event-id", b"").decode("latin-1")
        at = replica_in(event_id)
        if at is not None and not is_of_changes(event_id):
            return await self._carry(at, http, within_s=AT_ONCE_S)
        return await self._carry_home(session_id, http)

    async def delete(self, http: HttpRequest) -> bool:
        """Raises HttpError 404, 502."""
        at = replica_in(_session_id(http))
        return http.carried is None and at is not None and await self._carry_session(at, http)

    async def tell_deleted(self, http: HttpRequest) -> None:
        """Tell the others of a session that has ended here: first, or this one could hear from them that it is gone."""
        if http.carried is None and replica_in(_session_id(http)) is None:
            await self._peers.tell_all(http)

    async def sse_message(self, http: HttpRequest, session_id: str) -> bool:
        """Raises HttpError 404, 502."""
        at = replica_in(session_id)
        return http.carried is None and at is not None and await self._carry_session(at, http)

    def is_elsewhere(self, http: HttpRequest) -> bool:
        """Return whether only another replica knows the session of a request, and so its project."""
        at = replica_in(_session_id(http))
        return http.carried is None and at is not None and at != self._peers.own.id

    async def _legacy_post(self, http: HttpRequest, message: Json) -> bool:
        session_id = _session_id(http)
        if http.carried is not None or session_id is None:
            return False
        if at := replica_in(session_id):
            return await self._carry_session(at, http)
        method = message.get("method")
        if method is None:
            return await self._carry_answer(replica_in(message["id"]), http)
        if method == _CALL:
            return await self._carry_to_result(http, message)
        if method in _AT_HOME:
            return await self._carry_home(session_id, http)
        if method == _SET_LEVEL or (method == _CANCELLED and not self._runs_here(session_id, message)):
            await self._peers.tell_all(http)
        return False

    async def _modern_post(self, http: HttpRequest, message: Json, caller: Caller) -> bool:
        params, method = message.get("params") or {}, message.get("method")
        if http.carried is not None or method not in INPUT_REQUIRED_METHODS:
            return False
        if params.get("requestState") is None:
            return method == _CALL and await self._carry_to_result(http, message)
        try:
            client = modern_client(params.get("_meta") or {})
        except ProtocolError:
            return False  # the endpoint says why
        at = self._parked.replica_of(FrontRequest("", method, params, caller, client))
        return at is not None and await self._carry(at, http)

    async def _carry_to_result(self, http: HttpRequest, message: Json) -> bool:
        """Carry a read of a stored result to the replica that has it. Raises HttpError 502."""
        if len(http.body) > _MOST_RESULT_CALL or b"handle" not in http.body:
            return False
        params = message.get("params") or {}
        given = params.get("arguments")
        if params.get("name") != EXECUTE or not isinstance(given, dict):
            return False
        at = replica_in(result_handle(given))
        if at is None:
            return False
        return await self._carry(self._peers.heir_of(at) or at, http, within_s=_RESULT_S)

    def _runs_here(self, session_id: str, message: Json) -> bool:
        return self._sessions.runs(session_id, (message.get("params") or {}).get("requestId"))

    async def _carry_answer(self, replica_id: str | None, http: HttpRequest) -> bool:
        """Carry the answer to a question of a replica: nobody else can take it. Raises HttpError 502, 503."""
        if replica_id is None or replica_id == self._peers.own.id:
            return False
        if not await self._carry(replica_id, http, within_s=AT_ONCE_S):
            raise replica_unknown()
        return True

    async def _carry_session(self, replica_id: str, http: HttpRequest) -> bool:
        """Carry to the replica that alone has the session. Raises HttpError 404, 502."""
        if replica_id == self._peers.own.id:
            return False
        if not await self._carry(replica_id, http):
            raise unknown_session()
        return True

    async def _carry(self, replica_id: str, http: HttpRequest, *, within_s: float | None = None) -> bool:
        """False: it is this replica, gone or unknown. Raises HttpError 502."""
        replica = self._peers.find(replica_id)
        if replica is None:
            return False
        try:
            await self._peers.carry(replica, http, within_s=within_s)
        except RefusedError:
            raise replica_refused() from None
        except UnreachableError:
            return False
        except LostError:
            raise replica_lost() from None
        return True

    async def _carry_home(self, session_id: str, http: HttpRequest) -> bool:
        try:
            return await self._peers.carry_home(http, session_id, self._sessions.home_of(session_id))
        except LostError:
            raise replica_lost() from None


def _session_id(http: HttpRequest) -> str | None:
    given = http.head.get(b"mcp-session-id")
    return given.decode("latin-1") if given is not None else None
