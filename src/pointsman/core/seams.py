"""What stands between the front, the gateway and the downstream servers. Nothing here knows HTTP or the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pointsman.core.model import Caller, Json

Era = Literal["legacy", "modern"]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800


class ProtocolError(Exception):
    """Answered to the client as a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class CannotAskError(Exception):
    """This client cannot be asked this: it lacks the capability, or its kind of request carries no questions."""


class ClientGoneError(Exception):
    """The client left before it answered."""


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """Who speaks, as it introduced itself. None of it is trusted."""

    name: str
    era: Era
    version: str  # the protocol version that holds for this request
    capabilities: Json
    progress_token: str | int | None
    log_level: str | None


@dataclass(frozen=True, slots=True, eq=False)
class FrontRequest:
    """One request of one client, whatever its era or transport."""

    id: str  # ours, the audit row's requestId; the client's own id never leaves the front
    method: str
    params: Json  # _meta cleaned of our keys
    caller: Caller
    client: Client


class BackChannel(Protocol):
    """The way back to the client that made a request, while it is under way."""

    def tell(self, method: str, params: Json) -> None:
        """Send a notification. Never waits; the first one turns the answer into a stream."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """Send a request and wait for the client's result.

        Raises:
            CannotAskError: the client did not declare the capability, or cannot be asked.
            ClientGoneError: it left before it answered.
            ProtocolError: it answered with an error.
        """
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """Something that clients may want to know of: a list changed, or a resource."""

    method: str
    params: Json
    only: Caller | None = None  # whose own connection it came from (`isolation: per-caller`): nobody else's business


class Gateway(Protocol):
    """What the front needs. `router.gateway.gateway` has the one that serves; the front knows only this."""

    def identify(self, token: str | None, project: str | None) -> Caller:
        """Raises UnauthorizedError, ForbiddenError."""
        ...

    def still_valid(self, caller: Caller) -> bool:
        """Whether a caller that was let in earlier would be let in now. Asked of open streams, twice a second."""
        ...

    def tool_schema(self, caller: Caller, name: str) -> Json | None:
        """The input schema of a tool that is called by this name, as far as it is known at once.

        Only for the check of `Mcp-Param-*` headers. None: nothing to check.
        """
        ...

    def refused(self, code: str, token: str | None, method: str | None, params: Json, client: str) -> None:
        """Record a call that was refused before it had a caller (the audit row of a 401 or 403)."""
        ...

    def capabilities(self, caller: Caller, era: Era) -> Json: ...

    async def handle(self, request: FrontRequest, back: BackChannel) -> Json:
        """Raises ProtocolError. Cancellation arrives as such."""
        ...

    def changes(self, caller: Caller) -> AsyncIterator[Change]: ...


class Downstream(Protocol):
    """A server that a request can be carried to; it picks the connection, shared or the caller's own."""

    async def request(self, method: str, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        """Carry a request and return the server's result, as it sent it.

        Time spent inside `back.ask` does not count against the server's `call_s`.

        Raises:
            ServerUnavailableError: not running, the connection ended, or it broke its budget of bytes or messages.
            CallTimeoutError: no answer in time; the server was told to cancel.
            DownstreamError: it answered with a JSON-RPC error.
        """
        ...
