"""Calls with questions in them: what a repeated request carries, and the audit, where each round is a row."""

from __future__ import annotations

from pointsman.catalog.errors import AuditUnavailable
from pointsman.catalog.model import Json
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.seams import INTERNAL_ERROR, BackChannel, CannotAsk, FrontRequest, ProtocolError

_CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_ROUND_KEYS = ("inputResponses", "requestState")


def with_round(params: Json, given: Json) -> Json:
    """`params` with the answers that a modern client sends when it repeats its request."""
    for key in _ROUND_KEYS:
        if key in given:
            params[key] = given[key]
    return params


class Rounds:
    """Fits `BackChannel`. `record` is the row of the present round.

    For a modern client each round is an exchange of its own: it ends with `input_required`, and the answer begins
    the next one.
    """

    __slots__ = ("_arguments", "_audit", "_back", "_request", "_server_id", "_tool_key", "_waiting", "record")

    def __init__(
        self,
        audit: AuditLog,
        request: FrontRequest,
        back: BackChannel,
        tool_key: str | None,
        server_id: str | None,
        arguments: object,
    ) -> None:
        """Raises AuditUnavailable."""
        self._audit = audit
        self._request = request
        self._back = back
        self._tool_key = tool_key
        self._server_id = server_id
        self._arguments = arguments
        self._waiting = False  # the row has ended, and no answer has begun another
        self.record = self._begin()

    def tell(self, method: str, params: Json) -> None:
        self._back.tell(method, params)

    async def ask(self, method: str, params: Json) -> Json:
        if _CAPABILITY.get(method) not in self._request.client.capabilities:
            return await self._back.ask(method, params)  # is refused, so there is no round
        if not self._waiting:
            self._waiting = True
            self.record.finish("input_required")
        try:
            answer = await self._back.ask(method, params)
        except (CannotAsk, ProtocolError):
            self._next_round()
            raise
        self._next_round()
        return answer

    def _next_round(self) -> None:
        """The first answer begins it, however many questions were asked at once."""
        if not self._waiting:
            return
        try:
            self.record = self._begin(continued=True)
        except AuditUnavailable as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        self._waiting = False

    def _begin(self, *, continued: bool = False) -> Record:
        return self._audit.begin(
            self._request,
            "execute",
            tool_key=self._tool_key,
            server_id=self._server_id,
            arguments=self._arguments,
            continued=continued,
        )
