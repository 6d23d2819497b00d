"""What a server says or asks in the middle of a call: to the client that made the call, within the call's budget."""

from __future__ import annotations

from pointsman.config.model import Limits
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.core.seams import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    CannotAskError,
    Client,
    ClientGoneError,
    ProtocolError,
)
from pointsman.router.downstream.connection import BudgetExceededError, Call

PROGRESS = "notifications/progress"
LOG_MESSAGE = "notifications/message"
ELICITATION_DONE = "notifications/elicitation/complete"
# Notifications that belong to the call under way; all others concern the server as a whole.
SAID_IN_A_CALL = frozenset({PROGRESS, LOG_MESSAGE, ELICITATION_DONE})
SET_LEVEL = "logging/setLevel"

LEVELS = {
    level: rank
    for rank, level in enumerate(("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"))
}
_LEGACY_DEFAULT = "info"  # for a legacy client that never set a level; a modern one that names none wants no log


def count(call: Call, size: int, limits: Limits) -> None:
    """Charge one message of `size` bytes to `call`.

    Raises:
        BudgetExceededError: the server has said too much; the call must fail and be cancelled at the server.
    """
    call.messages += 1
    call.heard_bytes += size
    if call.messages > limits.messages:
        raise BudgetExceededError(f"it sent more than {limits.messages} messages in one call")
    if call.heard_bytes > limits.result_bytes:
        raise BudgetExceededError(f"it sent messages of more than {limits.result_bytes} bytes in one call")


def asked_by(call: Call, params: Json) -> bool:
    """Whether the elicitation that is complete, as `params` say, was asked in `call`."""
    return call.elicitations is not None and params.get("elicitationId") in call.elicitations


def tell(call: Call, method: str, params: Json) -> None:
    """Pass on a notification that belongs to `call`, if its client wants it."""
    if call.back is None or call.request is None:
        return
    client = call.request.client
    if method == PROGRESS:
        if client.progress_token is None:
            return
        params = {**params, "progressToken": client.progress_token}
    elif method == LOG_MESSAGE and not _wanted(client, params.get("level")):
        return
    call.back.tell(method, params)


def _wanted(client: Client, level: object) -> bool:
    least = client.log_level or (_LEGACY_DEFAULT if client.era == "legacy" else None)
    if least is None or not isinstance(level, str):
        return False
    return LEVELS.get(level, -1) >= LEVELS.get(least, 0)


async def answer(call: Call | None, question: Json, why_nobody: str = "no call is under way") -> Json:
    """Our JSON-RPC answer to a server's request, asked of the client that `call` serves.

    `call` is None where nobody can be asked, and `why_nobody` says why.
    """
    reply: Json = {"jsonrpc": "2.0", "id": question.get("id")}
    try:
        reply["result"] = await _ask(call, question, why_nobody)
    except ProtocolError as refused:
        reply["error"] = error_object(refused)
    return reply


async def _ask(call: Call | None, question: Json, why_nobody: str) -> Json:
    method = question.get("method")
    if method == "ping":
        return {}
    if method not in QUESTION_CAPABILITIES:
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found")
    if call is None or call.back is None:
        raise ProtocolError(INVALID_REQUEST, f"Nobody can be asked: {why_nobody}")
    params = question.get("params")
    if not isinstance(params, dict):
        params = {}
    if isinstance(elicitation_id := params.get("elicitationId"), str):
        call.elicitations = {elicitation_id, *(call.elicitations or ())}
    try:
        return await call.back.ask(method, params)
    except CannotAskError as reason:
        raise ProtocolError(METHOD_NOT_FOUND, str(reason) or "The client cannot be asked this") from None
    except ClientGoneError:
        raise ProtocolError(REQUEST_CANCELLED, "The client left before it answered") from None


def error_object(error: ProtocolError) -> Json:
    body: Json = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return body


def cancelled_answer(question: Json) -> Json:
    """What a server gets when the call that its question belonged to is over."""
    return {
        "jsonrpc": "2.0",
        "id": question.get("id"),
        "error": {"code": REQUEST_CANCELLED, "message": "The call that this question belonged to is over"},
    }
