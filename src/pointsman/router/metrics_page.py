"""`/metrics`: the figures that a reader may see; with `workers`, those of all of them, each with a label `worker`.

Sums would be wrong whenever a worker restarts or does not answer: Prometheus takes a counter that falls for one that
began anew. With a label, each series begins anew by itself, and `sum without (worker)` is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pointsman.core import wire
from pointsman.core.errors import UnauthorizedError
from pointsman.core.model import Caller, Json
from pointsman.router.front.asgi import Front
from pointsman.router.front.http.authentication import Claims, authenticate, verify
from pointsman.router.front.http.responses import unauthorized
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.observe import exposition
from pointsman.router.observe.metrics import MaySee, MayUse
from pointsman.router.owner.channel import Operation
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.replicas import PATH as PEER_PATH

if TYPE_CHECKING:
    from pointsman.router.peers.peers import Peers
    from pointsman.router.peers.replica import Replica

WORKER_S: Final = 2.0  # for another worker to answer; Prometheus waits 10 s by default
MAX_ANSWER_BYTES: Final = 64 << 20
OPERATION: Final = "metrics"

_Sight = tuple[MaySee, MayUse, MaySee | None]


class MetricsPage:
    """Answers a scrape. Each worker finds out by itself what the reader may see."""

    def __init__(self, front: Front, parts: Parts) -> None:
        self._front = front
        self._parts = parts

    async def show(self, claims: Claims) -> bytes:
        """Return the text format. Raises HttpError."""
        sight = _sight(self._parts.gateway, claims)
        peers = self._parts.peers
        if not self._parts.worker or peers is None:
            return await self._parts.metrics.scrape(*sight)
        asked = asyncio.gather(*(_ask(peers, replica, claims) for replica in peers.others))
        own, others = await asyncio.gather(self._parts.metrics.collected(*sight), asked)
        told: dict[int, list[Json] | None] = dict.fromkeys(range(1, self._parts.workers + 1))
        told |= dict(others) | {self._parts.worker: own}
        return await asyncio.to_thread(exposition.render_workers, dict(sorted(told.items())))

    def operations(self) -> Mapping[str, Operation]:
        """What another worker may ask, for a reader whose token it sends."""

        async def collect(given: Json) -> Json:
            claims = Claims(given["token"], given["project"], given["projectStated"])
            if self._front.sign_in is not None:
                await verify(self._front.sign_in, claims.token)
            return {"families": await self._parts.metrics.collected(*_sight(self._parts.gateway, claims))}

        return {OPERATION: collect}


def _sight(gateway: PointsmanGateway, claims: Claims) -> _Sight:
    """What the reader may see: servers, tools, and projects if figures are divided by them. Raises HttpError."""
    readers = _readers(gateway, claims)
    # A scrape that names no project shows all projects of its token, each by its name.
    divided = claims.token is not None and not claims.project_stated
    return (
        cache(lambda server_id: any(gateway.may_see(reader, server_id) for reader in readers)),
        cache(lambda server_id, tool: any(gateway.may_use(reader, server_id, tool) for reader in readers)),
        frozenset(reader.project_id for reader in readers).__contains__ if divided else None,
    )


def _readers(gateway: PointsmanGateway, claims: Claims) -> list[Caller]:
    """The callers whose rights a reader has: one if it names a project, all of its token if not. Raises HttpError."""
    if claims.token is None:
        return []
    if claims.project_stated:
        return [authenticate(gateway, claims)]
    try:
        return gateway.callers_of(claims.token)
    except UnauthorizedError as error:
        raise unauthorized(str(error)) from None


async def _ask(peers: Peers, replica: Replica, claims: Claims) -> tuple[int, list[Json] | None]:
    """The number of another worker, and its figures; None: it does not answer."""
    from pointsman.router.peers.forwarding import LostError, RefusedError, UnreachableError

    number = int(Path(replica.address).parent.name)
    parameters = {"token": claims.token, "project": claims.project, "projectStated": claims.project_stated}
    body = wire.encode({"operation": OPERATION, "parameters": parameters})
    try:
        code, text = await peers.post(replica, PEER_PATH, body, within_s=WORKER_S, most_bytes=MAX_ANSWER_BYTES)
        return number, wire.decode(text)["result"]["families"] if code == 200 else None
    except (LostError, RefusedError, UnreachableError, TimeoutError, wire.InvalidJsonError, KeyError, TypeError):
        return number, None
