"""Questions to a legacy client: asked on the stream of the request they belong to, answered by a POST of their own."""

from __future__ import annotations

import asyncio

from pointsman.core.kinds import declares
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, CannotAskError, ClientGoneError, ProtocolError
from pointsman.router.front.exchange import Exchange


class Questions:
    """The open questions of one session, by the ids under which we asked them."""

    __slots__ = ("_last", "_open")

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, asyncio.Future[Json]] = {}

    async def ask(self, exchange: Exchange, method: str, params: Json) -> Json:
        """Raises ClientGoneError, ProtocolError."""
        self._last += 1
        number = self._last
        if not exchange.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params}):
            raise ClientGoneError
        self._open[number] = exchange.expect_answer()
        try:
            return await self._open[number]
        except asyncio.CancelledError:
            exchange.tell("notifications/cancelled", {"requestId": number, "reason": "The call that asked is over."})
            raise
        finally:
            del self._open[number]

    def answered(self, response: Json) -> None:
        """A response that the client posted. One that fits no open question is dropped."""
        number = response["id"]
        answer = self._open.get(number) if type(number) is int else None
        if answer is None or answer.done():
            return
        if isinstance(response.get("result"), dict):
            answer.set_result(response["result"])
        else:
            answer.set_exception(_as_error(response.get("error")))

    def abandon(self) -> None:
        """The session is over."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(ClientGoneError())


def check_may_ask(capabilities: Json, method: str, params: Json) -> None:
    """Raises CannotAskError where the client did not declare that it can be asked this."""
    if not _declared(capabilities, method, params):
        raise CannotAskError(f"The client did not declare that it answers {method}.")


def _declared(capabilities: Json, method: str, params: Json) -> bool:
    if not declares(capabilities, method):
        return False
    if method != "elicitation/create":
        return True
    elicitation = capabilities["elicitation"]
    mode = params.get("mode", "form")
    # A bare `{}` is from the time when forms were all there was.
    return mode in elicitation or (mode == "form" and not elicitation)


def _as_error(error: object) -> ProtocolError:
    if not isinstance(error, dict):
        return ProtocolError(INTERNAL_ERROR, "The client's answer is malformed")
    code = error.get("code")
    return ProtocolError(
        code if type(code) is int else INTERNAL_ERROR, str(error.get("message", "")), error.get("data")
    )
