"""Has a server list what was never seen of it, right after its first pins: what it lists first much later waits.

Nobody waits for these lists, and they are not cached. A server that fails to give one is asked again twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from pointsman.catalog.lists.pages import MalformedListError, walk
from pointsman.catalog.pins import Admission
from pointsman.core.errors import CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.kinds import ListKind
from pointsman.core.model import ToolSource

DELAYS_S: Final = (0.5, 5.0, 20.0)  # before each attempt; before the first, the request that led to it is answered
AT_ONCE: Final = 4  # servers

logger = logging.getLogger(__name__)


class FirstLists:
    """`sources` is a live view of the servers by id. Each is asked once, for as long as its entry stays the same."""

    def __init__(
        self, sources: Mapping[str, ToolSource], admission: Admission, delays_s: Sequence[float] = DELAYS_S
    ) -> None:
        self._sources = sources
        self._admission = admission
        self._delays_s = delays_s
        self._asked: dict[str, ToolSource] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

    def fetch(self, server_id: str, kinds: Sequence[ListKind]) -> None:
        """Have the lists of these kinds admitted, in the background."""
        source = self._sources.get(server_id)
        if source is None or self._asked.get(server_id) is source:
            return
        self._asked = {one: asked for one, asked in self._asked.items() if self._sources.get(one) is asked}
        self._asked[server_id] = source
        task = asyncio.create_task(self._run(source, kinds), name=f"first lists of {server_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the background work and wait for its end."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, source: ToolSource, kinds: Sequence[ListKind]) -> None:
        missing = list(kinds)
        for delay_s in self._delays_s:
            await asyncio.sleep(delay_s)
            if source.status.state != "running" or self._sources.get(source.id) is not source:
                if self._asked.get(source.id) is source:
                    del self._asked[source.id]  # its next list leads here again
                return
            async with self._turns:
                missing = [kind for kind in missing if not await self._is_admitted(source, kind)]
            if not missing:
                return
        words = " and ".join(kind.words for kind in missing)
        logger.info("server %s gave no list of its %s; what it lists later waits for approval", source.id, words)

    async def _is_admitted(self, source: ToolSource, kind: ListKind) -> bool:
        try:
            async with asyncio.timeout(source.list_timeout_s):
                walked = await walk(lambda cursor: source.list_page(kind.method, cursor), kind)
        except (TimeoutError, CallTimeoutError, ServerUnavailableError, DownstreamError, MalformedListError) as error:
            logger.debug("server %s: %s failed: %r", source.id, kind.method, str(error))
            return False
        except Exception:  # a surprise of one server must not end the attempts
            logger.exception("server %s: %s could not be read", source.id, kind.method)
            return False
        await self._admission.admit(source, kind, walked.items)
        return True
