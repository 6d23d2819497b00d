"""Sends a request of a caller to one server: with its answers to questions, rows for each round, and a span."""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec.structs import replace

from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Json
from pointsman.core.sdk import INPUT_REQUIRED_METHODS
from pointsman.core.seams import BackChannel, FrontRequest, Span
from pointsman.router.audit.log import Record
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.gateway.rounds import RecordedRounds

_ROUND_KEYS = frozenset({"inputResponses", "requestState"})


def send_to_server(
    fleet: Fleet,
    server_id: str,
    params: Json,
    request: FrontRequest,
    back: BackChannel,
    record: Record,
    spent_s: float = 0.0,
    session: object | None = None,
) -> Awaitable[Json]:
    """Send a request, with the answers that a modern client repeats it with. Each round of questions has a row.

    Await the result at once. With `session`, only while that is the server's.

    Raises:
        GatewayError, DownstreamError: see `Downstream.request`.
    """
    server = fleet.servers.get(server_id)
    if server is None:  # a reload removed it after the request was resolved
        raise ServerUnavailableError(server_id, "it was taken out of the configuration")
    if not _ROUND_KEYS.isdisjoint(request.params) and request.method in INPUT_REQUIRED_METHODS:
        params |= {key: value for key, value in request.params.items() if key in _ROUND_KEYS}
    if request.client.era == "modern":  # a legacy client answers within its one request and row
        back = RecordedRounds(back, request, record)
    if request.span is not None:
        return _send_traced(request.span, server, params, request, back, spent_s, session)
    return server.request(request.method, params, request, back, spent_s, session)


async def _send_traced(
    parent: Span,
    server: DownstreamServer,
    params: Json,
    request: FrontRequest,
    back: BackChannel,
    spent_s: float,
    session: object | None,
) -> Json:
    """`DownstreamServer.request` with a span of its own, which the server's own spans can continue."""
    version = server.introduction.version if server.introduction is not None else ""
    span = parent.call(server.id, version, request.method, params)
    try:
        result = await server.request(request.method, params, replace(request, span=span), back, spent_s, session)
    except BaseException as error:
        span.end(error)
        raise
    span.end(result)
    return result
