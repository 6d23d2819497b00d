"""What two workers say to each other about a server that one of them runs: frames of JSON over a unix socket.

Each frame but one is an object with a `type`. From the worker that took a call:

- `call`: a request to the server, with its client; `cancel`: the call is over
- `answer`: what the client answered to a question

From the worker that runs the server:

- `hello`: the handshake of the server, or `failed`: why there is none
- the result or the error of a call, with its `id` and without a type: large content stays undecoded then
- `note`: a notification for the client of a call; `notice`: one that belongs to no call
- `ask`, `unask`: a question to the client of a call, and its end
- `clock`: whether the time of a call is paused
- `over`: the connection takes no more calls; those under way may end
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pointsman.core import wire
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import CannotAskError, Client, ClientGoneError, FrontRequest, ProtocolError, Span
from pointsman.router.downstream.connection import BudgetExceededError, Call, CallNotSentError, ConnectionLostError
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES, decode, decode_off_loop

_MOST_UNSENT: Final = 256 << 20  # bytes; a worker that hangs reads nothing
_LENGTH_BYTES: Final = 4

logger = logging.getLogger(__name__)


class Channel:
    """One connection between two workers. `send` never waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_bytes: int) -> None:
        self._reader = reader
        self._writer = writer
        self._most_bytes = most_bytes  # of one frame

    def send(self, frame: Json) -> None:
        if self._writer.is_closing():
            return
        data = wire.encode(frame)
        self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        if self._writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            logger.error("another worker does not read: its connection is closed")
            self.close()

    async def receive(self) -> Json | None:
        """The next frame; None at the end of the connection."""
        try:
            size = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            if size > self._most_bytes:
                return None
            data = await self._reader.readexactly(size)
            frame = decode(data) if size <= OFF_LOOP_BYTES else await decode_off_loop(data)
        except (asyncio.IncompleteReadError, OSError, wire.InvalidJsonError):
            return None
        return frame if isinstance(frame, dict) else None

    def close(self) -> None:
        self._writer.transport.abort()


# ------------------------------------------------------------------ a call


def call_frame(number: int, call: Call) -> Json:
    """Describe a call for the worker that runs its server."""
    frame: Json = {"type": "call", "call": number, "method": call.method, "params": call.params}
    request = call.request
    if request is not None and call.back is not None:
        client, caller = request.client, request.caller
        frame["request"] = {
            "caller": [caller.token_id, caller.project_id],
            "session": request.session,
            "meta": request.params.get("_meta"),
            "client": [client.name, client.era, client.version, client.progress_token, client.log_level],
            "capabilities": client.capabilities,
            "context": dict(request.span.context) if request.span is not None else None,
        }
    return frame


def request_of(method: str, told: Json, capabilities: Json) -> FrontRequest:
    """The client's request of `call_frame`, as far as a connection looks at it."""
    name, era, version, progress_token, log_level = told["client"]
    token_id, project_id = told["caller"]
    params = {} if told["meta"] is None else {"_meta": told["meta"]}
    client = Client(name, era, version, capabilities, progress_token, log_level)
    span: Span | None = _Context(told["context"]) if told["context"] is not None else None
    return FrontRequest("", method, params, Caller(token_id, project_id), client, span, told["session"])


class _Context(Struct, frozen=True):
    """Fits `Span`, as far as a connection uses one: the worker with the call records it."""

    context: Mapping[str, str]

    def call(self, server_id: str, version: str, method: str, params: Json) -> Span:
        raise NotImplementedError

    def end(self, outcome: Json | BaseException, request: FrontRequest | None = None) -> None:
        raise NotImplementedError


# ------------------------------------------------------------------ errors


def error_frame(error: BaseException) -> Json:
    """Describe an error of a call or of a question."""
    if isinstance(error, DownstreamError | ProtocolError):
        return {"kind": "answer", "code": error.code, "message": error.message, "data": error.data}
    return {"kind": next(kind for kind, one in _KINDS.items() if isinstance(error, one)), "message": str(error)}


def error_of(told: Json, *, question: bool = False) -> Exception:
    """The error that `error_frame` has described: of a call, or of a question."""
    if told["kind"] != "answer":
        kind: type[Exception] = _KINDS[told["kind"]]
        return kind(told["message"])
    return (ProtocolError if question else DownstreamError)(told["code"], told["message"], told["data"])


_KINDS: Final[dict[str, type[Exception]]] = {  # the most special first
    "not_sent": CallNotSentError,
    "lost": ConnectionLostError,
    "budget": BudgetExceededError,
    "cannot_ask": CannotAskError,
    "client_gone": ClientGoneError,
}
CALL_ERRORS: Final = (DownstreamError, ConnectionLostError, BudgetExceededError)
QUESTION_ERRORS: Final = (ProtocolError, CannotAskError, ClientGoneError)
