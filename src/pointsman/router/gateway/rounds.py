"""Records the rounds of questions that a call asks a modern client, each as a row of its own."""

from __future__ import annotations

from msgspec import Struct

from pointsman.core.errors import AuditUnavailableError
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, BackChannel, CannotAskError, FrontRequest, ProtocolError
from pointsman.router.audit.log import Record


class RecordedRounds(Struct, eq=False):
    """Fits `BackChannel`: records a row for each round of questions.

    For a modern client each round is a request of its own: it ends with `input_required`, and the answer begins the
    next one.
    """

    _back: BackChannel
    _request: FrontRequest
    _record: Record
    _waiting: bool = False  # the row has ended, and no answer has begun the next one

    def notify(self, method: str, params: Json) -> None:
        self._back.notify(method, params)

    async def ask(self, method: str, params: Json) -> Json:
        if QUESTION_CAPABILITIES.get(method) not in self._request.client.capabilities:
            return await self._back.ask(method, params)  # which refuses, so there is no round
        if not self._waiting:
            self._waiting = True
            self._record.finish("input_required")
        try:
            answer = await self._back.ask(method, params)
        except (CannotAskError, ProtocolError):
            self.next_round()
            raise
        self.next_round()
        return answer

    def reachable(self) -> bool:
        return self._back.reachable()

    def next_round(self) -> None:
        """Begin the next row at the first answer, however many questions were asked at once. Raises ProtocolError."""
        if not self._waiting:
            return
        try:
            self._record.begin_next_round()
        except AuditUnavailableError as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        self._waiting = False
