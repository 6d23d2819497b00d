"""Calls with questions in them: what a repeated request carries, and the audit, where each round is a row."""

from __future__ import annotations

from pointsman.core.errors import AuditUnavailableError
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, BackChannel, CannotAskError, FrontRequest, ProtocolError
from pointsman.router.audit.log import Record

_ROUND_KEYS = ("inputResponses", "requestState")


def with_round(params: Json, given: Json) -> Json:
    """`params` with the answers that a modern client sends when it repeats its request."""
    for key in _ROUND_KEYS:
        if key in given:
            params[key] = given[key]
    return params


def recorded(back: BackChannel, request: FrontRequest, record: Record) -> BackChannel:
    """`back`, with a row for each round of questions. A legacy client answers within its one request and row."""
    return back if request.client.era == "legacy" else Rounds(back, request, record)


class Rounds:
    """Fits `BackChannel`.

    For a modern client each round is an exchange of its own: it ends with `input_required`, and the answer begins
    the next one.
    """

    __slots__ = ("_back", "_record", "_request", "_waiting")

    def __init__(self, back: BackChannel, request: FrontRequest, record: Record) -> None:
        self._back = back
        self._request = request
        self._record = record
        self._waiting = False  # the row has ended, and no answer has begun another

    def tell(self, method: str, params: Json) -> None:
        self._back.tell(method, params)

    async def ask(self, method: str, params: Json) -> Json:
        if QUESTION_CAPABILITIES.get(method) not in self._request.client.capabilities:
            return await self._back.ask(method, params)  # is refused, so there is no round
        if not self._waiting:
            self._waiting = True
            self._record.finish("input_required")
        try:
            answer = await self._back.ask(method, params)
        except (CannotAskError, ProtocolError):
            self._next_round()
            raise
        self._next_round()
        return answer

    def _next_round(self) -> None:
        """The first answer begins it, however many questions were asked at once."""
        if not self._waiting:
            return
        try:
            self._record.begin_next_round()
        except AuditUnavailableError as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        self._waiting = False
