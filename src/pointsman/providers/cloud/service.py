"""One configured search service: each call has one deadline and passes the circuit breakers."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from msgspec import Struct

from pointsman.config.model import CloudSearch
from pointsman.providers.base import SearchHits, SearchRequest
from pointsman.providers.cloud import errors as cloud_errors
from pointsman.providers.cloud.breaker import Breaker, BreakerState, Pass
from pointsman.providers.cloud.errors import CloudError
from pointsman.providers.cloud.http import MAX_CONNECTIONS, CloudHttp
from pointsman.providers.cloud.wire import Packed, Packer, validate

logger = logging.getLogger(__name__)

PACK_INLINE_TOOLS = 50  # more are encoded in a thread

# Loading the HTTP client, once, is not part of the service's deadline; a caller waits this long for it in addition.
OPEN_ALLOWANCE_S = 0.25


class CloudStatus(Struct, frozen=True):
    """The state that operators see."""

    opened: int  # how often the breaker has opened
    invented: int  # results that named tools which were not in the request
    refused_projects: int  # projects that the service rejects while it serves others
    state: BreakerState
    reason: str | None = None  # of the last failure, while the breaker is not closed


class CloudService:
    """A cancelled caller does not cancel its call: the outcome still counts for the breaker."""

    def __init__(self, settings: CloudSearch, clock: Callable[[], float], probe_patience_s: float) -> None:
        self.settings = settings
        self._probe_patience_s = probe_patience_s
        self._http = CloudHttp(settings)
        self._packer = Packer()
        self._breaker = Breaker(clock)
        # A project that the service rejects must not cost the others their search.
        self._project_breakers: defaultdict[str | None, Breaker] = defaultdict(lambda: Breaker(clock))
        self._reasons: dict[Breaker, str] = {}
        self._reported: set[tuple[str, str | None]] = set()
        self._calls: set[asyncio.Task[SearchHits]] = set()
        self._invented = 0

    def status(self) -> CloudStatus:
        refused = sum(breaker.state != "closed" for breaker in self._project_breakers.values())
        return CloudStatus(self._breaker.opened, self._invented, refused, *self.state_for())

    def state_for(self, *project_ids: str | None) -> tuple[BreakerState, str | None]:
        """The state of the service's breaker or, if closed, of the projects'; with the last error unless closed."""
        for breaker in (self._breaker, *(self._project_breakers[project_id] for project_id in project_ids)):
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
        call.add_done_callback(lambda done: self._finish_call(done, entered))
        probes = any(each.probes for each in entered)
        patience_s = self._probe_patience_s if probes else self.settings.timeout_s + OPEN_ALLOWANCE_S
        await asyncio.wait({call}, timeout=patience_s)
        if not call.done() and not probes:
            raise cloud_errors.timed_out(self.settings.timeout_s)
        if not call.done() or call.cancelled():
            raise cloud_errors.left_alone()
        return call.result()

    async def prepare(self) -> None:
        """Load the HTTP client before the first call."""
        await self._http.open()

    async def finish(self) -> None:
        """Drain the calls under way, then close the connections."""
        while self._calls:
            await asyncio.wait(set(self._calls))
        await self._http.close()

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await self.finish()

    def _enter(self, project_id: str | None) -> tuple[Pass, Pass]:
        """Pass the breakers of the service and of the project. Raises CloudError."""
        own = self._project_breakers[project_id].enter()
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
            logger.info("cloud search: the service has recovered")
        shared.succeeded()
        own.succeeded()
        return hits

    async def _ask(self, request: SearchRequest) -> SearchHits:
        """Raises CloudError, also for our own bugs: a discovery must always be answered."""
        try:
            await self._http.open()
            async with asyncio.timeout(self.settings.timeout_s):
                answer = validate(await self._http.post(await self._packed(request)), request)
        except TimeoutError:
            raise cloud_errors.timed_out(self.settings.timeout_s) from None
        except CloudError:
            raise
        except Exception:
            logger.exception("cloud search: internal error")
            raise cloud_errors.internal() from None
        if answer.invented:
            self._count_invented(answer.invented)
            if not answer.hits:
                raise cloud_errors.invented(answer.invented)
        return answer.hits

    async def _packed(self, request: SearchRequest) -> Packed:
        if len(request.tools) > PACK_INLINE_TOOLS:
            return await asyncio.to_thread(self._packer.pack, request)
        return self._packer.pack(request)

    def _failed(self, failure: CloudError, project_id: str | None, shared: Pass, own: Pass) -> None:
        self._report(failure, project_id)
        if failure.project_only:
            shared.succeeded()
            own.failed(timed_out=False)
            self._reasons[self._project_breakers[project_id]] = str(failure)
            return
        own.left()
        opened = self._breaker.opened
        shared.failed(timed_out=failure.code == cloud_errors.TIMEOUT)
        self._reasons[self._breaker] = str(failure)
        if self._breaker.opened > opened:  # and not before, by another of the calls that were under way
            logger.warning("cloud search: the local search answers for the next %g s", self._breaker.rest_s)

    def _report(self, failure: CloudError, project_id: str | None) -> None:
        """Log an error that only the operator can fix once, and others each time, which the breaker bounds."""
        if not failure.fix:
            detail = f" ({failure.detail!r:.300})" if failure.detail else ""
            logger.warning("cloud search: the service %s%s", failure, detail)
            return
        reported = (failure.code, project_id if failure.project_only else None)
        if reported not in self._reported:
            self._reported.add(reported)
            logger.error(
                "cloud search%s: the service %s. Fix the configuration: %s. `pointsman doctor` checks it.",
                *(_of_project(project_id) if failure.project_only else "", failure, failure.fix),
            )

    def _count_invented(self, count: int) -> None:
        if not self._invented:
            logger.warning("cloud search: the service named %d tools that were not in the request; dropped", count)
        self._invented += count

    def _finish_call(self, call: asyncio.Task[SearchHits], entered: tuple[Pass, Pass]) -> None:
        self._calls.discard(call)
        for each in entered:
            each.left()  # no effect unless it was cancelled before it had an outcome
        if not call.cancelled():
            call.exception()  # retrieved, so that asyncio does not report it if the caller is gone


def _of_project(project_id: str | None) -> str:
    return " without a project" if project_id is None else f" in project `{project_id}`"
