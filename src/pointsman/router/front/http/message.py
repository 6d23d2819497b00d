"""The shape of a JSON-RPC message, checked by hand: no library's words reach the client."""

from __future__ import annotations

from typing import Any

from pointsman.core.model import Json
from pointsman.core.seams import PARSE_ERROR
from pointsman.core.wire import InvalidJsonError, decode
from pointsman.router.front.http.refusal import HttpError

_ID_TYPES = (int, str)  # compared with `type(...)`, because True is an int


def parse(body: bytes) -> Json:
    """One request, notification or response. Raises HttpError 400."""
    try:
        message = decode(body)
    except InvalidJsonError:
        raise HttpError(400, "Parse error: the body is not JSON.", code=PARSE_ERROR) from None
    if type(message) is not dict or message.get("jsonrpc") != "2.0":
        raise HttpError(400, 'The body must be one JSON-RPC message, an object with "jsonrpc": "2.0".')
    if "method" in message:
        _check_call(message)
    else:
        _check_response(message)
    return message


def echoed_id(message: Any) -> Any:
    """The id to answer under; None where the message has none that could be echoed."""
    found = message.get("id") if type(message) is dict else None
    return found if type(found) in _ID_TYPES else None


def meta_of(message: Json) -> Json | None:
    """`params._meta` of a message that `parse` let pass."""
    params = message.get("params")
    return params.get("_meta") if params else None


def _check_call(message: Json) -> None:
    if type(message["method"]) is not str or not message["method"]:
        raise HttpError(400, "`method` must be a string.")
    if "id" in message and type(message["id"]) not in _ID_TYPES:
        raise HttpError(400, "`id` must be a string or an integer.")
    if "result" in message or "error" in message:
        raise HttpError(400, "A message with `method` carries no `result` and no `error`.")
    params = message.get("params")
    if params is None:
        return
    if type(params) is not dict:
        raise HttpError(400, "`params` must be an object.")
    if type(params.get("_meta")) not in (dict, type(None)):
        raise HttpError(400, "`params._meta` must be an object.")


def _check_response(message: Json) -> None:
    if ("result" in message) == ("error" in message):
        raise HttpError(400, "The message is neither a request (`method`) nor a response (`result` or `error`).")
    if type(message.get("id")) not in _ID_TYPES:
        raise HttpError(400, "`id` must be a string or an integer.")
