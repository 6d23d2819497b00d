"""The search provider that calls a search service, as currently configured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pointsman.config.model import CloudSearch
from pointsman.providers.base import SearchHits, SearchRequest

if TYPE_CHECKING:  # loaded with the first service that is configured: most gateways have none
    from pointsman.providers.cloud.breaker import BreakerState
    from pointsman.providers.cloud.service import CloudService, CloudStatus

PROBE_PATIENCE_S = 0.25  # how long a caller waits for its request if that is the probe, which has the whole deadline


class CloudSearchProvider:
    """Lives as long as the gateway; a reload may replace the service behind it."""

    name = "cloud"

    def __init__(
        self,
        settings: CloudSearch | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        probe_patience_s: float = PROBE_PATIENCE_S,
    ) -> None:
        self._clock = clock
        self._probe_patience_s = probe_patience_s
        self._service = self._made(settings)
        self._ending: dict[asyncio.Task[None], CloudService] = {}
        self._opened_before = self._invented_before = 0  # of replaced services: counters never decrease

    def configure(self, settings: CloudSearch | None) -> None:
        """Use this service from now on. A changed one starts with a closed breaker; the old one is drained."""
        old = self._service
        if settings == (old.settings if old else None):
            return
        self._service = self._made(settings)
        if old is not None:
            self._opened_before += old.status().opened
            self._invented_before += old.status().invented
            ending = asyncio.create_task(old.finish())
            self._ending[ending] = old
            ending.add_done_callback(self._ending.pop)

    def status(self) -> CloudStatus | None:
        """None: no service is configured."""
        if self._service is None:
            return None
        now = self._service.status()
        return replace(now, opened=self._opened_before + now.opened, invented=self._invented_before + now.invented)

    def state_for(self, project_id: str | None) -> tuple[BreakerState | Literal["unconfigured"], str | None]:
        """The state as a project sees it, and the last error."""
        return self._service.state_for(project_id) if self._service else ("unconfigured", None)

    async def search(self, request: SearchRequest) -> SearchHits:
        """Raises CloudError, which is a SearchUnavailableError."""
        if self._service is None:
            from pointsman.providers.cloud.errors import unconfigured

            raise unconfigured()
        if not request.tools:
            return SearchHits([], [0.0] * len(request.queries))
        return await self._service.search(request)

    async def prepare(self) -> None:
        """Load what the first search needs."""
        if self._service is not None:
            await self._service.prepare()

    async def close(self) -> None:
        """Cancel the calls under way and close the connections."""
        services = [*self._ending.values(), *([self._service] if self._service else [])]
        await asyncio.gather(*(service.close() for service in services), *self._ending)

    def _made(self, settings: CloudSearch | None) -> CloudService | None:
        if settings is None:
            return None
        from pointsman.providers.cloud.service import CloudService

        return CloudService(settings, self._clock, self._probe_patience_s)
