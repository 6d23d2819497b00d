"""Reads the configuration again when its file changes or SIGHUP arrives; a broken edit changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from watchfiles import awatch

from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig

logger = logging.getLogger(__name__)

_GROUP_MS = 100  # an editor's burst of events is one change
_LOOK_AGAIN_MS = 1000  # file systems without events (some mounts) are seen by looking


class Reloader:
    """Watches one file. `refusal` holds the problems of an edit that was refused, until a good one comes."""

    def __init__(
        self,
        path: Path,
        load: Callable[[], GatewayConfig],
        apply: Callable[[GatewayConfig], Awaitable[None]],
    ) -> None:
        self._path = path
        self._load = load
        self._apply = apply
        self._seen = self._fingerprint()
        self._wanted = asyncio.Event()
        self.refusal: tuple[str, ...] = ()

    def request(self) -> None:
        """Read it again, changed or not (SIGHUP: what `${file:...}` names may have changed)."""
        self._wanted.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._reload_on_request())

    async def _watch(self) -> None:
        # The folder, not the file: editors and orchestrators put a new file in the old one's place.
        folders = {self._path.absolute().parent, self._path.resolve().parent}
        async for _ in awatch(
            *folders,
            watch_filter=None,
            debounce=_GROUP_MS,
            step=_GROUP_MS // 2,
            rust_timeout=_LOOK_AGAIN_MS,
            yield_on_timeout=True,
            recursive=False,
        ):
            if self._fingerprint() not in (None, self._seen):
                self._seen = await self._finished()
                self._wanted.set()

    async def _finished(self) -> tuple[int, int, int] | None:
        """Wait until the file stays as it is: some programs empty it first and write it piece by piece."""
        before = None
        while (fingerprint := self._fingerprint()) is None or fingerprint != before:
            before = fingerprint
            await asyncio.sleep(_GROUP_MS / 1000)
        return fingerprint

    async def _reload_on_request(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._reload()

    async def _reload(self) -> None:
        try:
            config = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self.refusal = tuple(str(problem) for problem in error.problems)
            logger.error(  # noqa: TRY400 - the problems say it all, a traceback would hide them
                "the new configuration is refused, the running one stays:\n%s", "\n".join(self.refusal)
            )
            return
        self.refusal = ()
        await self._apply(config)
        logger.info("configuration reloaded from %s", self._path.name)

    def _fingerprint(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None  # between two writes of an editor; gone for good is no order to stop
        return found.st_mtime_ns, found.st_size, found.st_ino
