"""Questions to clients: which ones a client can answer, and the open questions of a legacy session."""

from __future__ import annotations

import asyncio

from pointsman.core.kinds import declares
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, CannotAskError, ClientGoneError, ProtocolError
from pointsman.router.front.exchange import Exchange


class Questions:
    """The open questions of one legacy session, by the request ids that we sent.

    A question is sent on the stream of the request it belongs to, and answered by a POST of its own. Among replicas
    that POST may arrive at another one, so the id names ours.
    """

    __slots__ = ("_last", "_open", "_replica")

    def __init__(self, replica: str = "") -> None:
        self._replica = replica
        self._last = 0
        self._open: dict[int | str, asyncio.Future[Json]] = {}

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Raises ClientGoneError, ProtocolError."""
        self._last += 1
        question_id = f"{self._replica}.{self._last}" if self._replica else self._last
        if not exchange.send_message({"jsonrpc": "2.0", "id": question_id, "method": method, "params": params}):
            raise ClientGoneError
        self._open[question_id] = exchange.expect_answer()
        try:
            return await self._open[question_id]
        except asyncio.CancelledError:
            reason = "The call that asked is over."
            exchange.notify("notifications/cancelled", {"requestId": question_id, "reason": reason})
            raise
        finally:
            del self._open[question_id]

    def resolve(self, response: Json) -> None:
        """Pass on a response that the client posted. One that fits no open question is dropped."""
        question_id = response["id"]
        answer = self._open.get(question_id) if type(question_id) in (int, str) else None
        if answer is None or answer.done():
            return
        if isinstance(response.get("result"), dict):
            answer.set_result(response["result"])
        else:
            answer.set_exception(_as_error(response.get("error")))

    def abandon(self) -> None:
        """Fail all open questions, because the session ended."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(ClientGoneError())


def check_may_ask(capabilities: Json, method: str, params: Json) -> None:
    """Raises CannotAskError if the client did not declare the capability for this question."""
    if not _is_declared(capabilities, method, params):
        raise CannotAskError(f"The client did not declare that it answers {method}.")


def _is_declared(capabilities: Json, method: str, params: Json) -> bool:
    if not declares(capabilities, method):
        return False
    if method != "elicitation/create":
        return True
    elicitation = capabilities["elicitation"]
    mode = params.get("mode", "form")
    # An empty capability is from the time before modes, when there were only forms.
    return mode in elicitation or (mode == "form" and not elicitation)


def _as_error(error: object) -> ProtocolError:
    if not isinstance(error, dict):
        return ProtocolError(INTERNAL_ERROR, "The client's answer is malformed")
    code = error.get("code")
    return ProtocolError(
        code if type(code) is int else INTERNAL_ERROR, str(error.get("message", "")), error.get("data")
    )
