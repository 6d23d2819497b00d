"""Legacy sessions: about a kilobyte each, no task, bound to the token and the address that opened them."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pointsman.catalog.model import Caller, Json
from pointsman.router.front.failures import Clock
from pointsman.router.front.questions import Questions, check_may_ask
from pointsman.router.seams import Client

if TYPE_CHECKING:
    from pointsman.router.front.exchange import Exchange


class TooManySessions(Exception):
    """The cap is reached, and each session has a call under way or a stream open."""


@dataclass(slots=True, eq=False)
class Session:
    id: str
    caller: Caller  # who opened it
    address: str | None  # the project that header or path named; `_meta` names one for each request anew
    client: Client
    used: float
    calls: dict[str | int, list[Exchange]] = field(default_factory=dict)  # by the client's ids, which may repeat
    questions: Questions = field(default_factory=Questions)
    stream: asyncio.Future[None] | None = None  # of the open GET stream; done when it shall end

    @property
    def busy(self) -> bool:
        return bool(self.calls) or self.stream is not None

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Fits `Asker`."""
        check_may_ask(self.client.capabilities, method, params)
        return await self.questions.ask(exchange, method, params)

    def cancel(self, client_id: str | int) -> None:
        """All running calls of that id: the client cannot tell them apart either."""
        for exchange in list(self.calls.get(client_id, ())):
            exchange.cancel()

    def end_stream(self) -> None:
        if self.stream is not None and not self.stream.done():
            self.stream.set_result(None)


class Sessions:
    """All open sessions, the longest unused first."""

    def __init__(self, clock: Clock, most: int, idle_s: float) -> None:
        self._clock = clock
        self._open: OrderedDict[str, Session] = OrderedDict()
        self.most = most
        self.idle_s = idle_s

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller, address: str | None, client: Client) -> Session:
        """Raises TooManySessions."""
        while len(self._open) >= self.most:
            self._evict()
        session = Session(secrets.token_hex(20), caller, address, client, self._clock())
        self._open[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        session = self._open.get(session_id)
        if session is not None and self._expired(session):
            self.end(session)
            return None
        return session

    def touch(self, session: Session) -> None:
        session.used = self._clock()
        if session.id in self._open:
            self._open.move_to_end(session.id)

    def end(self, session: Session) -> None:
        """Its calls are cancelled, its stream ends, its questions stay without an answer."""
        self._open.pop(session.id, None)
        session.end_stream()
        for client_id in list(session.calls):
            session.cancel(client_id)
        session.questions.abandon()

    def reap(self) -> None:
        """End what has been unused for too long."""
        for session in list(self._open.values()):
            if self._expired(session):
                self.end(session)

    def end_streams(self) -> None:
        for session in self._open.values():
            session.end_stream()

    def _expired(self, session: Session) -> bool:
        return not session.busy and self._clock() - session.used > self.idle_s

    def _evict(self) -> None:
        for session in self._open.values():
            if not session.busy:
                self.end(session)
                return
        raise TooManySessions
