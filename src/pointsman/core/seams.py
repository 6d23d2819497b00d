"""The interfaces between the front, the gateway and the downstream servers. Independent of HTTP and the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Protocol

import msgspec

from pointsman.core.model import Caller, Json

Era = Literal["legacy", "modern"]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800

EXAMPLE_REQUESTS = "pointsman/exampleRequests"
"""In `_meta` of a tool: requests, as people word them, that it should serve. Tool search compares requests with them by
meaning; only those of bundled servers are read."""

CONFIRMATION = "pointsmanConfirmation"
"""In a result of type `input_required`: what the front seals with the server's state, for `confirmation`."""

COUNTED_ROUND = "pointsmanRound"
"""In a result of type `input_required`: what the front seals with the server's state, for `counted_round`."""


class ProtocolError(Exception):
    """Becomes a JSON-RPC error in the answer to the client."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class CannotAskError(Exception):
    """The client cannot be asked this: it lacks the capability, or its kind of request allows no questions."""


class ClientGoneError(Exception):
    """The client left before it answered."""


class Client(msgspec.Struct, frozen=True, eq=False):  # a struct, because each call makes one
    """The client as it introduced itself. None of it is trusted."""

    name: str
    era: Era
    version: str  # the protocol version of this request
    capabilities: Json
    progress_token: str | int | None
    log_level: str | None


class Span(Protocol):
    """One traced operation (OpenTelemetry). Without `telemetry` there is none."""

    @property
    def context(self) -> Mapping[str, str]:
        """`traceparent` and, if there is one, `tracestate`: what to pass on in `_meta` and HTTP headers."""
        ...

    def call(self, server_id: str, version: str, method: str, params: Json) -> Span:
        """Begin the child for a request to a server that speaks this protocol version; empty: it is not known."""
        ...

    def end(self, outcome: Json | BaseException, request: FrontRequest | None = None) -> None:
        """End it with the result or error. The first call counts; `request` is described if it got that far."""
        ...


class Tracer(Protocol):
    """Traces clients' requests. `router.observe.tracing` implements it."""

    def begin(self, message: Json, head: Mapping[bytes, bytes], caller: Caller) -> Span:
        """Begin the span of a JSON-RPC request that arrived with these HTTP headers."""
        ...


class FrontRequest(msgspec.Struct, frozen=True, eq=False):  # a struct, because each call makes one
    """One request of one client, whatever its era or transport."""

    id: str  # ours, the audit row's requestId; the client's own id never leaves the front
    method: str
    params: Json  # _meta cleaned of our keys
    caller: Caller
    client: Client
    span: Span | None = None  # the request's own, or that of its call to a server
    session: str = ""  # the id of a legacy session; a modern client has none
    confirmation: str | None = None  # of the round before, for which a person said yes; unsealed, so it is ours
    counted_round: str | None = None  # of the round before, with which the call was counted; unsealed as well


class BackChannel(Protocol):
    """The channel back to the client of a request, while it is under way."""

    def notify(self, method: str, params: Json) -> None:
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

    def reachable(self) -> bool:
        """Whether the client is connected now, or is to come back by itself because it has been answered (modern)."""
        ...


class Change(msgspec.Struct, frozen=True):
    """A change that clients may have subscribed to: of a list, or of a resource."""

    method: str
    params: Json
    only: Caller | None = None  # the caller on whose own connection it came (`isolation: per-caller`)


class Gateway(Protocol):
    """What the front needs of the gateway. `router.gateway.gateway` implements it."""

    def identify(self, token: str | None, project: str | None) -> Caller:
        """`project` is None if the request states none, and empty if it states that it wants none.

        Raises UnauthorizedError, ForbiddenError.
        """
        ...

    def still_valid(self, caller: Caller) -> bool:
        """Whether a caller that was admitted earlier would be admitted now. Checked twice a second for open streams."""
        ...

    def tool_schema(self, caller: Caller, name: str) -> Json | None:
        """The input schema of the tool with this name, if it is cached.

        Only for the check of `Mcp-Param-*` headers. None: there is nothing to check.
        """
        ...

    def refused(
        self,
        code: str,
        token: str | None,
        method: str | None,
        params: Json,
        client: str,
        person: str | None = None,
    ) -> None:
        """Record a call that was refused before it had a caller (the audit row of a 401, 403 or 421).

        `person`: whom its access token stands for, if that was verified.
        """
        ...

    def capabilities(self, caller: Caller, era: Era) -> Json: ...

    async def handle(self, request: FrontRequest, back: BackChannel) -> Json:
        """Handle a request. Raises ProtocolError; may be cancelled."""
        ...

    def changes(self, caller: Caller) -> AsyncIterator[Change]: ...


class Downstream(Protocol):
    """A server that takes requests; it picks the connection, shared or the caller's own."""

    async def request(self, method: str, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        """Send a request and return the server's result unchanged.

        Time spent inside `back.ask` does not count against the server's `call_s`.

        Raises:
            ServerUnavailableError: not running, the connection ended, or a budget of bytes or messages was exceeded.
            CallTimeoutError: no answer in time; the call was cancelled at the server.
            DownstreamError: it answered with a JSON-RPC error.
        """
        ...
