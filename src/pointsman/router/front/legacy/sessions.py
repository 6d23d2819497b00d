"""Legacy sessions: about a kilobyte each, without a task, bound to the token and project that opened them.

A session id is sealed and says what it stands for, so any process with the keys can restore the session from it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from asyncio import Future
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pointsman.config.model import CurrentConfig
from pointsman.core.model import Caller, Json
from pointsman.core.sealing import SealError, Sealing
from pointsman.core.seams import Client
from pointsman.core.wire import decode, encode
from pointsman.router.front.legacy.replay import EventStore, SessionEvents
from pointsman.router.front.methods import INITIAL_LOG_LEVEL, initial_client
from pointsman.router.front.questions import Questions, check_may_ask
from pointsman.router.front.state import Clock, WallClock
from pointsman.router.front.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pointsman.router.front.exchange import Exchange

LIFE_S: Final = 7 * 86_400.0  # an id older than this restores no session; one that is open stays open
PRIMED_SINCE: Final = "2025-11-25"  # clients from this version on support events that have an id and no data
_MOST_ENDED: Final = 100_000  # remembered ids of ended sessions
_MOST_ID_BYTES: Final = 1024  # of a sealed record; the id is a header of every request, and proxies limit those
_PURPOSE: Final = b"pointsman session id"  # separates the key from that of `requestState`
_VERSION: Final = 1
_VERSION_WITH_HOME: Final = 2


class TooManySessionsError(Exception):
    """The limit is reached, and every session has a call under way or a stream open."""


@dataclass(slots=True, eq=False)
class Session:
    id: str
    caller: Caller  # that opened it
    project: str | None  # stated in header or path; `_meta` may state another for each request
    client: Client
    used: float
    events: SessionEvents
    subscriptions: Subscriptions
    calls: dict[Exchange, str | int] = field(default_factory=dict)  # each with the client's id, which may repeat
    questions: Questions = field(default_factory=Questions)
    stream: Future[None] | None = None  # of the open GET stream; done when that must end

    @property
    def busy(self) -> bool:
        return bool(self.calls) or self.stream is not None

    @property
    def has_unsealed_state(self) -> bool:
        """Whether it has state that its id does not store, and that restoring it from the id would lose."""
        return bool(self.subscriptions) or self.client.log_level != INITIAL_LOG_LEVEL

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Fits `Asker`."""
        check_may_ask(self.client.capabilities, method, params)
        if params.get("mode") == "url" and "elicitationId" not in params:
            params = {**params, "elicitationId": secrets.token_hex(8)}  # this era requires one, the modern era has none
        return await self.questions.ask(exchange, method, params)

    def cancel(self, client_id: str | int) -> None:
        """Cancel all running calls with that request id, which the client cannot tell apart either."""
        for exchange in [exchange for exchange, known in self.calls.items() if known == client_id]:
            exchange.cancel()

    def end_stream(self) -> None:
        if self.stream is not None and not self.stream.done():
            self.stream.set_result(None)

    def close(self) -> None:
        """Cancel its calls, end its stream, and abandon its questions."""
        self.end_stream()
        for exchange in list(self.calls):
            exchange.cancel()
        self.questions.abandon()
        self.subscriptions.end()
        self.events.end()


@dataclass(frozen=True, slots=True)
class Record:
    """What a session id stores."""

    caller: Caller
    project: str | None  # stated in header or path
    client: Client
    home: str | None = None  # the replica that opened it, and that has its stream and subscriptions


class SessionIds:
    def __init__(self, keys: Sequence[str], clock: WallClock = time.time, replica: str = "") -> None:
        self._codec = Sealing([hmac.digest(key.encode(), _PURPOSE, "sha256") for key in keys])
        self._clock = clock
        self._replica = replica

    def mint(self, record: Record) -> str:
        """Return a new id. If the record is too large to seal, the id is random and ends with this process.

        Among replicas either kind names this one.
        """
        caller, client = record.caller, record.client
        sealed = [_VERSION, self._clock(), caller.token_id, caller.project_id, record.project]
        fields = [*sealed, client.version, client.name, client.capabilities]
        if self._replica:
            fields = [_VERSION_WITH_HOME, *fields[1:], self._replica]
        data = encode(fields)
        if len(data) <= _MOST_ID_BYTES:
            return self._codec.seal(data)
        return f"{self._replica}.{secrets.token_hex(20)}" if self._replica else secrets.token_hex(20)

    def read(self, session_id: str) -> Record | None:
        """Return the record in an id, or None if the id is not ours or too old."""
        try:
            fields = decode(self._codec.unseal(session_id))
        except SealError:
            return None
        if fields[0] not in (_VERSION, _VERSION_WITH_HOME) or self._clock() - fields[1] > LIFE_S:
            return None
        token_id, project_id, stated_project, version, name, capabilities = fields[2:8]
        client = initial_client(name, version, capabilities)
        home = fields[8] if fields[0] == _VERSION_WITH_HOME else None
        return Record(Caller(token_id, project_id), stated_project, client, home)


class Sessions:
    """All open sessions, the longest unused first. A closed one can be restored from its id."""

    def __init__(
        self,
        clock: Clock,
        current: CurrentConfig,
        ids: SessionIds,
        subscriptions: Callable[[], Subscriptions],
        replica: str = "",
    ) -> None:
        self._clock = clock
        self._current = current
        self._replica = replica
        self._ids = ids
        self._subscriptions = subscriptions
        self._events = EventStore(clock)
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._count: Counter[str] = Counter()  # of open sessions, by token id
        self._ended: OrderedDict[bytes, float] = OrderedDict()  # digests of ended sessions' ids, with their expiry
        self.on_end: Callable[[bytes], None] = lambda digest: None  # told the digest of a session that its client ends

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller, project: str | None, client: Client) -> Session:
        """Raises TooManySessionsError."""
        record = Record(caller, project, client)
        return self._add(self._ids.mint(record), record)

    def find(self, session_id: str, token_id: str, project: str | None) -> Session | None:
        """Return the session with that id if it belongs to this token and project. Raises TooManySessionsError."""
        session = self._open.get(session_id)
        if session is not None and self._is_expired(session):
            self._close(session)
            session = None
        if session is None:
            return self._restore(session_id, token_id, project)
        return session if session.caller.token_id == token_id and session.project == project else None

    def project_of(self, session_id: str) -> str | None:
        """Return the project that a session was opened for, without a check of the token."""
        session = self._open.get(session_id)
        if session is not None:
            return session.caller.project_id
        record = self._ids.read(session_id)
        return record.caller.project_id if record is not None else None

    def home_of(self, session_id: str) -> str | None:
        """Return the replica that opened a session, without a check of the token; None: it is not known."""
        record = self._ids.read(session_id)
        return record.home if record is not None else None

    def runs(self, session_id: str, client_id: object) -> bool:
        """Return whether a call with that id runs here."""
        session = self._open.get(session_id)
        return session is not None and type(client_id) in (int, str) and client_id in session.calls.values()

    def touch(self, session: Session) -> None:
        session.used = self._clock()
        if session.id in self._open:
            self._open.move_to_end(session.id)

    def end(self, session: Session) -> None:
        """End a session for good: it cannot be restored, here or elsewhere."""
        self.on_end(self._end_here(session))

    def end_elsewhere(self, digests: Mapping[bytes, float]) -> None:
        """End the sessions that other gateways have ended: by digest, for how long that has to be known."""
        fresh = {digest: left_s for digest, left_s in digests.items() if digest not in self._ended}
        if not fresh:
            return
        for digest, left_s in fresh.items():
            self._remember_ended(digest, left_s)
        for session in [session for session in self._open.values() if _digest(session.id) in fresh]:
            self._remove(session)
            session.close()

    def _end_here(self, session: Session) -> bytes:
        self._remove(session)
        digest = _digest(session.id)
        self._remember_ended(digest, LIFE_S)
        session.close()
        return digest

    def _remember_ended(self, digest: bytes, left_s: float) -> None:
        self._ended[digest] = self._clock() + left_s
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def reap(self) -> None:
        """Close sessions that have been unused for too long."""
        for session in list(self._open.values()):
            if self._is_expired(session):
                self._close(session)
        now = self._clock()
        while self._ended and next(iter(self._ended.values())) <= now:
            self._ended.popitem(last=False)
        self._events.evict()

    def end_streams(self) -> None:
        for session in self._open.values():
            session.end_stream()

    def _add(self, session_id: str, record: Record) -> Session:
        while len(self._open) >= self._current.config.limits.sessions:
            self._evict()
        events = SessionEvents(self._events, primed=record.client.version >= PRIMED_SINCE, replica=self._replica)
        session = Session(
            session_id, record.caller, record.project, record.client, self._clock(), events, self._subscriptions()
        )
        if self._replica:
            session.questions = Questions(self._replica)
        self._open[session_id] = session
        self._count[record.caller.token_id] += 1
        return session

    def _restore(self, session_id: str, token_id: str, project: str | None) -> Session | None:
        record = self._ids.read(session_id)
        if record is None or record.caller.token_id != token_id or record.project != project:
            return None
        if _digest(session_id) in self._ended:
            return None
        return self._add(session_id, record)

    def _close(self, session: Session) -> None:
        """Free a session. It is restored at its next request, unless its id does not store its whole state."""
        if session.has_unsealed_state:
            self._end_here(session)
            return
        self._remove(session)
        session.close()

    def _remove(self, session: Session) -> None:
        if self._open.pop(session.id, None) is None:
            return
        token_id = session.caller.token_id
        self._count[token_id] -= 1
        if not self._count[token_id]:
            del self._count[token_id]

    def _is_expired(self, session: Session) -> bool:
        unused_s = self._clock() - session.used
        return unused_s > self._current.limits.session_idle_s and not session.busy

    def _evict(self) -> None:
        """Close the longest unused session of the token with the most, so that no token evicts the others' sessions."""
        largest = max(self._count, key=self._count.__getitem__)
        victim: Session | None = None
        for session in self._open.values():
            if session.busy:
                continue
            if session.caller.token_id == largest:
                victim = session
                break
            victim = victim or session
        if victim is None:
            raise TooManySessionsError
        self._close(victim)


def _digest(session_id: str) -> bytes:
    return sha256(session_id.encode("latin-1")).digest()[:16]
