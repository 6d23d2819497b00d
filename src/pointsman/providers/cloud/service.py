"""One search service as it is configured: calls to it under one deadline each, and the breakers before them."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.config.model import CloudSearch
from pointsman.providers.base import SearchHits, SearchRequest
from pointsman.providers.cloud import errors as cloud_errors
from pointsman.providers.cloud.breaker import Breaker, BreakerState, Pass
from pointsman.providers.cloud.errors import CloudError
from pointsman.providers.cloud.http import MAX_CONNECTIONS, CloudHttp
from pointsman.providers.cloud.wire import Packed, Packer, judge

logger = logging.getLogger(__name__)

PACK_ASIDE_FROM = 50  # tools
PROBE_PATIENCE_S = 0.25  # for the one whose request is the probe; the probe itself has the whole deadline

# Loading the HTTP client, once, is no part of the service's deadline, and a caller must not wait for both in full.
OPEN_ALLOWANCE_S = 0.25


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """What operators are shown."""

    opened: int  # how often the breaker did
    invented: int  # results that named tools which the service was not given
    refused_projects: int  # that the service gives no answers, though others get theirs
    state: BreakerState
    reason: str | None = None  # of the last failure, while the breaker is not closed


class CloudService:
    """Whoever asks may leave at any time: the call goes on, and what it tells about the service is not lost."""

    def __init__(self, settings: CloudSearch, clock: Callable[[], float], probe_patience_s: float) -> None:
        self.settings = settings
        self._probe_patience_s = probe_patience_s
        self._http = CloudHttp(settings)
        self._packer = Packer()
        self._breaker = Breaker(clock)
        # A project that the service refuses must not cost the others their search.
        self._own_breakers: defaultdict[str | None, Breaker] = defaultdict(lambda: Breaker(clock))
        self._reasons: dict[Breaker, str] = {}
        self._reported: set[tuple[str, str | None]] = set()
        self._calls: set[asyncio.Task[SearchHits]] = set()
        self._invented = 0

    def status(self) -> CloudStatus:
        refused = sum(own.state != "closed" for own in self._own_breakers.values())
        return CloudStatus(self._breaker.opened, self._invented, refused, *self.state_for())

    def state_for(self, *project_ids: str | None) -> tuple[BreakerState, str | None]:
        """Of the service or, where that is well, of a project with it; and the last failure, unless all is well."""
        for breaker in (self._breaker, *(self._own_breakers[project_id] for project_id in project_ids)):
            if breaker.state != "closed":
                return breaker.state, self._reasons.get(breaker)
        return "closed", None

    async def search(self, request: SearchRequest) -> SearchHits:
        """Raises CloudError."""
        if len(self._calls) >= MAX_CONNECTIONS:
            raise cloud_errors.busy()
        entered = self._enter(request.project_id)
        call = asyncio.create_task(self._call(request, entered))
        self._calls.add(call)
        for each in entered:
            each.on_cut = call.cancel
        call.add_done_callback(lambda done: self._over(done, entered))
        probes = any(each.probes for each in entered)
        patience_s = self._probe_patience_s if probes else self.settings.timeout_s + OPEN_ALLOWANCE_S
        await asyncio.wait({call}, timeout=patience_s)
        if not call.done() and not probes:
            raise cloud_errors.timed_out(self.settings.timeout_s)
        if not call.done() or call.cancelled():
            raise cloud_errors.left_alone()
        return call.result()

    async def prepare(self) -> None:
        """Load what the first call would otherwise wait for."""
        await self._http.open()

    async def finish(self) -> None:
        """Let the calls under way end, then close the connections."""
        while self._calls:
            await asyncio.wait(set(self._calls))
        await self._http.close()

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await self.finish()

    def _enter(self, project_id: str | None) -> tuple[Pass, Pass]:
        """For the service, and for this project with it. Raises CloudError."""
        own = self._own_breakers[project_id].enter()
        if own is None:
            raise cloud_errors.left_alone()
        shared = self._breaker.enter()
        if shared is None:
            own.left()
            raise cloud_errors.left_alone()
        return shared, own

    async def _call(self, request: SearchRequest, entered: tuple[Pass, Pass]) -> SearchHits:
        shared, own = entered
        try:
            hits = await self._ask(request)
        except CloudError as failure:
            self._failed(failure, request.project_id, shared, own)
            raise
        if shared.probes:
            logger.info("cloud search: the service answers again")
        shared.succeeded()
        own.succeeded()
        return hits

    async def _ask(self, request: SearchRequest) -> SearchHits:
        """Raises CloudError and, the service's fault or ours, nothing else: a discovery is always answered."""
        try:
            await self._http.open()
            async with asyncio.timeout(self.settings.timeout_s):
                judged = judge(await self._http.post(await self._packed(request)), request)
        except TimeoutError:
            raise cloud_errors.timed_out(self.settings.timeout_s) from None
        except CloudError:
            raise
        except Exception:
            logger.exception("cloud search: a fault of our own")
            raise CloudError("cloud_internal", "could not be asked") from None
        if judged.invented:
            self._count_invented(judged.invented)
            if not judged.hits:
                raise cloud_errors.invented(judged.invented)
        return judged.hits

    async def _packed(self, request: SearchRequest) -> Packed:
        if len(request.tools) > PACK_ASIDE_FROM:
            return await asyncio.to_thread(self._packer.pack, request)
        return self._packer.pack(request)

    def _failed(self, failure: CloudError, project_id: str | None, shared: Pass, own: Pass) -> None:
        self._report(failure, project_id)
        if failure.own:
            shared.succeeded()
            own.failed(timed_out=False)
            self._reasons[self._own_breakers[project_id]] = str(failure)
            return
        own.left()
        opened = self._breaker.opened
        shared.failed(timed_out=failure.code == cloud_errors.TIMEOUT)
        self._reasons[self._breaker] = str(failure)
        if self._breaker.opened > opened:  # and not before, by another of the calls that were under way
            logger.warning("cloud search: the local search answers for the next %g s", self._breaker.rest_s)

    def _report(self, failure: CloudError, project_id: str | None) -> None:
        """What only the operator can mend is told once; the rest of it each time, which the breaker bounds."""
        if not failure.mend:
            detail = f" ({failure.detail!r:.300})" if failure.detail else ""
            logger.warning("cloud search: the service %s%s", failure, detail)
            return
        known = (failure.code, project_id if failure.own else None)
        if known not in self._reported:
            self._reported.add(known)
            logger.error(
                "cloud search%s: the service %s. A fault of the configuration: %s. `pointsman doctor` tries it.",
                *(_place(project_id) if failure.own else "", failure, failure.mend),
            )

    def _count_invented(self, count: int) -> None:
        if not self._invented:
            logger.warning("cloud search: the service named %d tools that it was not given; they are dropped", count)
        self._invented += count

    def _over(self, call: asyncio.Task[SearchHits], entered: tuple[Pass, Pass]) -> None:
        self._calls.discard(call)
        for each in entered:
            each.left()  # where it was cut short before it could tell anything
        if not call.cancelled():
            call.exception()  # asked for, so that it is not reported as lost where everybody has left


def _place(project_id: str | None) -> str:
    return " without a project" if project_id is None else f" in project `{project_id}`"
