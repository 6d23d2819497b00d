"""A modern server's `input_required`, carried to a legacy client: each question is asked, then the call is repeated."""

from __future__ import annotations

from pointsman.core.errors import DownstreamError
from pointsman.core.kinds import QUESTION_CAPABILITIES, declares
from pointsman.core.model import Json
from pointsman.core.seams import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    BackChannel,
    CannotAskError,
    ClientGoneError,
    FrontRequest,
    ProtocolError,
)
from pointsman.router.downstream.connection import Call, Clock, Connection

_ROUNDS = 10  # a server that is never content must not keep a person busy for ever
_SHOWN = 40  # characters of a server's word


async def carry(
    connection: Connection,
    method: str,
    params: Json,
    request: FrontRequest,
    back: BackChannel,
    clock: Clock | None = None,
) -> Json:
    """Send one call. A modern client gets `input_required` as it is, and repeats the call itself.

    Raises:
        ConnectionLostError, BudgetExceededError, DownstreamError.
    """
    if connection.introduction.era == "legacy":
        return await connection.request(Call(method, params, request, back, clock))
    result = await connection.request(Call(method, params, request, back, clock))
    if not _asks(result):
        return result
    if request.client.era == "modern":
        _check_declared(result, request.client.capabilities)
        return result
    for _ in range(_ROUNDS):
        repeated = {**params, "inputResponses": await _responses(result, back)}
        if "requestState" in result:
            repeated["requestState"] = result["requestState"]
        result = await connection.request(Call(method, repeated, request, back, clock))
        if not _asks(result):
            return result
    raise DownstreamError(INVALID_REQUEST, f"the server asked for more input {_ROUNDS} times in a row")


def _asks(result: Json) -> bool:
    """Raises DownstreamError where the result is neither an answer nor a question.

    What else a server may return (a task, say) belongs to extensions that this gateway does not carry: the client
    could do nothing with it, because what would follow does not lead to that server.
    """
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return False
    if kind == "input_required":
        return True
    shown = kind if isinstance(kind, str) and len(kind) <= _SHOWN else type(kind).__name__
    raise DownstreamError(
        INTERNAL_ERROR, f"the server answered with a result of type `{shown}`, which this gateway does not carry"
    )


def _check_declared(result: Json, capabilities: Json) -> None:
    """A client is not shown what it never said it could answer. Raises DownstreamError."""
    for question in _questions(result).values():
        method = _method(question)
        if method in QUESTION_CAPABILITIES and not declares(capabilities, method):
            raise _unable(method)


def _unable(method: str) -> DownstreamError:
    return DownstreamError(INVALID_REQUEST, f"the server needs `{method}`, which this client cannot do")


def _questions(result: Json) -> Json:
    wanted = result.get("inputRequests") or {}
    if not isinstance(wanted, dict):
        raise DownstreamError(INVALID_REQUEST, "the server asked for input in a form that cannot be read")
    return wanted


def _method(question: object) -> str:
    method = question.get("method") if isinstance(question, dict) else None
    return method if isinstance(method, str) else ""


async def _responses(result: Json, back: BackChannel) -> Json:
    return {key: await _ask(question, back) for key, question in _questions(result).items()}


async def _ask(question: object, back: BackChannel) -> Json:
    method = _method(question)
    if not isinstance(question, dict) or method not in QUESTION_CAPABILITIES:
        raise DownstreamError(INVALID_REQUEST, "the server asked for input of a kind that is not known")
    params = question.get("params")
    try:
        return await back.ask(method, params if isinstance(params, dict) else {})
    except CannotAskError:
        raise _unable(method) from None
    except ClientGoneError:
        raise DownstreamError(REQUEST_CANCELLED, "the client left before it answered") from None
    except ProtocolError as error:
        raise DownstreamError(error.code, error.message, error.data) from None
