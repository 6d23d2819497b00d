"""Legacy sessions: about a kilobyte each, no task, bound to the token and the address that opened them."""

from __future__ import annotations

import secrets
from asyncio import Future
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from pointsman.core.model import Caller, Json
from pointsman.core.seams import Client
from pointsman.router.front.http.failures import Clock
from pointsman.router.front.legacy.questions import Questions, check_may_ask
from pointsman.router.front.legacy.replay import SessionEvents, Store
from pointsman.router.front.legacy.session_ids import INITIAL_LEVEL, LIFE_S, Record, SessionIds
from pointsman.router.front.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pointsman.router.front.exchange import Exchange

PRIMED_SINCE = "2025-11-25"  # clients of this version know events that only prime them with an id
_MOST_ENDED = 100_000  # ids that are remembered as over


class TooManySessionsError(Exception):
    """The cap is reached, and each session has a call under way or a stream open."""


@dataclass(slots=True, eq=False)
class Session:
    id: str
    caller: Caller  # who opened it
    address: str | None  # the project that header or path named; `_meta` names one for each request anew
    client: Client
    used: float
    events: SessionEvents
    subscriptions: Subscriptions
    calls: dict[str | int, list[Exchange]] = field(default_factory=dict)  # by the client's ids, which may repeat
    questions: Questions = field(default_factory=Questions)
    stream: Future[None] | None = None  # of the open GET stream; done when it shall end

    @property
    def busy(self) -> bool:
        return bool(self.calls) or self.stream is not None

    @property
    def outgrew_its_id(self) -> bool:
        """It holds what its id does not say: taken up again by its id alone, it would silently be another one."""
        return bool(self.subscriptions) or self.client.log_level != INITIAL_LEVEL

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Fits `Asker`."""
        check_may_ask(self.client.capabilities, method, params)
        if params.get("mode") == "url" and "elicitationId" not in params:
            params = {**params, "elicitationId": secrets.token_hex(8)}  # this era demands one, the modern has none
        return await self.questions.ask(exchange, method, params)

    def cancel(self, client_id: str | int) -> None:
        """All running calls of that id: the client cannot tell them apart either."""
        for exchange in list(self.calls.get(client_id, ())):
            exchange.cancel()

    def end_stream(self) -> None:
        if self.stream is not None and not self.stream.done():
            self.stream.set_result(None)

    def close(self) -> None:
        """Its calls are cancelled, its stream ends, its questions stay without an answer."""
        self.end_stream()
        for client_id in list(self.calls):
            self.cancel(client_id)
        self.questions.abandon()
        self.subscriptions.end()
        self.events.end()


class Sessions:
    """All open sessions, the longest unused first. One that is not open can be taken up again by its id."""

    def __init__(
        self,
        clock: Clock,
        most: int,
        idle_s: float,
        ids: SessionIds,
        subscriptions: Callable[[], Subscriptions],
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._subscriptions = subscriptions
        self._events = Store(clock)
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._held: Counter[str] = Counter()  # how many are open, by token id
        self._ended: OrderedDict[bytes, float] = OrderedDict()  # digests of ids that revive nothing, with their time
        self.most = most
        self.idle_s = idle_s

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller, address: str | None, client: Client) -> Session:
        """Raises TooManySessionsError."""
        return self._opened(self._ids.mint(caller, address, client), Record(caller, address, client))

    def find(self, session_id: str, token_id: str, address: str | None) -> Session | None:
        """The session of that id, if it is this token's. Raises TooManySessionsError."""
        session = self._open.get(session_id)
        if session is not None and self._expired(session):
            self._let_go(session)
            session = None
        if session is None:
            return self._revived(session_id, token_id, address)
        return session if session.caller.token_id == token_id and session.address == address else None

    def project_of(self, session_id: str) -> str | None:
        """The project that a session was opened for, whosever it is."""
        session = self._open.get(session_id)
        if session is not None:
            return session.caller.project_id
        record = self._ids.read(session_id)
        return record.caller.project_id if record is not None else None

    def touch(self, session: Session) -> None:
        session.used = self._clock()
        if session.id in self._open:
            self._open.move_to_end(session.id)

    def end(self, session: Session) -> None:
        """For good: its id revives nothing any more."""
        self._remove(session)
        self._ended[_digest(session.id)] = self._clock() + LIFE_S
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        session.close()

    def reap(self) -> None:
        """Let go of what has been unused for too long."""
        for session in list(self._open.values()):
            if self._expired(session):
                self._let_go(session)
        now = self._clock()
        while self._ended and next(iter(self._ended.values())) <= now:
            self._ended.popitem(last=False)
        self._events.tidy()

    def end_streams(self) -> None:
        for session in self._open.values():
            session.end_stream()

    def _opened(self, session_id: str, record: Record) -> Session:
        while len(self._open) >= self.most:
            self._evict()
        events = SessionEvents(self._events, primed=record.client.version >= PRIMED_SINCE)
        session = Session(
            session_id, record.caller, record.address, record.client, self._clock(), events, self._subscriptions()
        )
        self._open[session_id] = session
        self._held[record.caller.token_id] += 1
        return session

    def _revived(self, session_id: str, token_id: str, address: str | None) -> Session | None:
        record = self._ids.read(session_id)
        if record is None or record.caller.token_id != token_id or record.address != address:
            return None
        if _digest(session_id) in self._ended:
            return None
        return self._opened(session_id, record)

    def _let_go(self, session: Session) -> None:
        """Free what it takes. Where its id says it all, its client will not even notice."""
        if session.outgrew_its_id:
            self.end(session)
            return
        self._remove(session)
        session.close()

    def _remove(self, session: Session) -> None:
        if self._open.pop(session.id, None) is None:
            return
        token_id = session.caller.token_id
        self._held[token_id] -= 1
        if not self._held[token_id]:
            del self._held[token_id]

    def _expired(self, session: Session) -> bool:
        return not session.busy and self._clock() - session.used > self.idle_s

    def _evict(self) -> None:
        """The longest unused session of the token that has the most, so that one token cannot push out the others'."""
        largest = max(self._held, key=self._held.__getitem__)
        found: Session | None = None
        for session in self._open.values():
            if session.busy:
                continue
            if session.caller.token_id == largest:
                found = session
                break
            found = found or session
        if found is None:
            raise TooManySessionsError
        self._let_go(found)


def _digest(session_id: str) -> bytes:
    return sha256(session_id.encode("latin-1")).digest()[:16]
