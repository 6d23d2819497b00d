"""The tool catalog with its search providers: builds them, prepares them for the first discovery, and closes them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pointsman.catalog.definitions import ChangedTools
from pointsman.catalog.identities import Identities
from pointsman.catalog.lists.first_lists import FirstLists
from pointsman.catalog.offers import Offers
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import CurrentConfig, Strategy
from pointsman.providers.base import SearchProvider
from pointsman.providers.bm25.provider import FILE as PREPARED_TOOLS
from pointsman.providers.bm25.provider import LOAD_WAIT_S, BM25SearchProvider
from pointsman.providers.cloud.provider import CloudSearchProvider
from pointsman.providers.disk_cache import DiskCache
from pointsman.providers.semantic.tool_encoder import ToolEncoder
from pointsman.providers.semantic.vector_store import FILE as VECTORS
from pointsman.providers.semantic.vector_store import VectorStore
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.talk.server_memory import ServerMemory
from pointsman.router.observe.usage import UsageMemory
from pointsman.router.owner.operations import OWNER
from pointsman.router.serving import process
from pointsman.router.state.pins import Pins

SERVERS_FIRST_S = 1.0  # before what can wait is prepared in the background


class Search:
    """The catalog of all servers' tools, and the providers that rank them."""

    def __init__(
        self,
        current: CurrentConfig,
        fleet: Fleet,
        state_dir: Path,
        *,
        pins: Pins,
        usage: UsageMemory,
        names: ServerMemory,
        changed_tools: ChangedTools,
        identities: Identities,
    ) -> None:
        self._fleet = fleet
        self._started = False
        self._needed = asyncio.Event()  # by a discovery that waits for it
        self.encoder = ToolEncoder(lambda: current.config.search.semantic, VectorStore(state_dir / VECTORS))
        self._local = BM25SearchProvider(
            lambda: current.config.search.embeddings,
            load_wait_s=LOAD_WAIT_S,
            encoder=self.encoder,
            disk=DiskCache(state_dir / PREPARED_TOOLS),
        )
        self.cloud = CloudSearchProvider(current.config.cloud_search)
        providers: dict[Strategy, SearchProvider] = {"bm25": self._local, "cloud": self.cloud}
        self.catalog = ToolCatalogService(
            current.config,
            fleet.servers,
            providers,
            usage=usage.figures,
            changed_tools=changed_tools,
            names=names,
            admission=pins,
            identities=identities,
        )
        self.offers = Offers(self.catalog, fleet.servers)
        self._first_lists = FirstLists(fleet.servers, pins)
        pins.incomplete = self._first_lists.fetch

    async def close(self) -> None:
        await self._first_lists.close()
        await self.offers.close()
        await asyncio.to_thread(self.encoder.close)
        await self.cloud.close()
        await self.catalog.close()

    async def encode_tools(self) -> None:
        """Have the vectors of all tools computed, or read from disk, before the first discovery."""
        if self.encoder.in_use and self.catalog.searchable:
            tools = (await self.catalog.available(OWNER)).tools
            await self.encoder.encoded(tuple([tool.document for tool in tools]))

    def wanted(self, searches: bool) -> bool:
        """Whether to `prepare` for a client that has connected or `searches`: once, and only if search is used."""
        if searches:
            self._needed.set()
        if self._started or not self.catalog.searchable:
            return False
        self._started = True
        return True

    async def prepare(self) -> None:
        """Load the search model and index all tools for the first client. Without one they would only take memory."""
        await self._servers_first()
        await self._local.prepare()
        available = await self.catalog.available(OWNER)
        with self.catalog.watch.postponed():
            await self._local.prepare_tools([tool.document for tool in available.tools])
        # Of all generations, with the tools of all servers, it would hold the event loop for 40 ms.
        process.exempt_from_collection(process.YOUNG)

    async def _servers_first(self) -> None:
        """Leave the processor to the handshakes of the servers for a moment: a first discovery waits for them.

        One that has come needs the model as soon as it has their lists; half of the loading needs no interpreter lock.
        """
        waits = [asyncio.ensure_future(self._fleet.settled()), asyncio.ensure_future(self._needed.wait())]
        try:
            await asyncio.wait(waits, timeout=SERVERS_FIRST_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
