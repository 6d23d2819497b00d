"""A modern server's `input_required`, carried to a legacy client: each question is asked, then the call is repeated."""

from __future__ import annotations

from pointsman.catalog.errors import DownstreamRefusal
from pointsman.catalog.model import Json
from pointsman.router.downstream.connection import Call, Connection
from pointsman.router.seams import (
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    BackChannel,
    CannotAsk,
    ClientGone,
    FrontRequest,
    ProtocolError,
)

_ROUNDS = 10  # a server that is never content must not keep a person busy for ever
_QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


async def carry(connection: Connection, method: str, params: Json, request: FrontRequest, back: BackChannel) -> Json:
    """Send one call. A modern client gets `input_required` as it is and repeats the call itself.

    Raises:
        ConnectionLost, BudgetBroken, DownstreamRefusal.
    """
    result = await connection.request(Call(method, params, request, back))
    if result.get("resultType") != "input_required" or request.client.era == "modern":
        return result
    for _ in range(_ROUNDS):
        repeated = {**params, "inputResponses": await _responses(result, back)}
        if "requestState" in result:
            repeated["requestState"] = result["requestState"]
        result = await connection.request(Call(method, repeated, request, back))
        if result.get("resultType") != "input_required":
            return result
    raise DownstreamRefusal(INVALID_REQUEST, f"the server asked for more input {_ROUNDS} times in a row")


async def _responses(result: Json, back: BackChannel) -> Json:
    wanted = result.get("inputRequests") or {}
    if not isinstance(wanted, dict):
        raise DownstreamRefusal(INVALID_REQUEST, "the server asked for input in a form that cannot be read")
    return {key: await _ask(question, back) for key, question in wanted.items()}


async def _ask(question: object, back: BackChannel) -> Json:
    method = question.get("method") if isinstance(question, dict) else None
    if not isinstance(question, dict) or method not in _QUESTIONS:
        raise DownstreamRefusal(INVALID_REQUEST, "the server asked for input of a kind that is not known")
    params = question.get("params")
    try:
        return await back.ask(method, params if isinstance(params, dict) else {})
    except CannotAsk:
        raise DownstreamRefusal(INVALID_REQUEST, f"the server needs `{method}`, which this client cannot do") from None
    except ClientGone:
        raise DownstreamRefusal(REQUEST_CANCELLED, "the client left before it answered") from None
    except ProtocolError as error:
        raise DownstreamRefusal(error.code, error.message, error.data) from None
