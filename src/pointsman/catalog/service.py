"""The catalog: what a caller can use right now, what of it fits a request, and which tool a key means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from pointsman.catalog import notices
from pointsman.catalog.arguments import Unproven
from pointsman.catalog.collecting import Collected, Lists
from pointsman.catalog.definitions import ChangedTools, Definitions
from pointsman.catalog.describe import ServerTools, described
from pointsman.catalog.listing import Clock, KnownList, KnownTool, Patience, Silent, Snapshot, tools_of
from pointsman.catalog.naming import display_name
from pointsman.catalog.results import Available, SearchOutcome, fitting_notice, own_results
from pointsman.catalog.rights import RightsIndex
from pointsman.catalog.usage import LOOK_BELOW, UsageFigures, lifted, no_usage
from pointsman.config.model import GatewayConfig, Strategy
from pointsman.core.errors import ServerUnavailableError, UnknownToolError
from pointsman.core.kinds import TOOLS
from pointsman.core.model import Caller, Json, ToolKey, ToolSource, WallClock
from pointsman.providers.base import SearchHit, SearchHits, SearchProvider, SearchRequest, SearchUnavailableError

LOCAL: Strategy = "bm25"  # the provider that always answers
HEDGE_S = 0.2  # for another provider to answer before the local one searches beside it


class ToolCatalogService:
    """Collects at request time from all servers that a caller may use, filters, searches and resolves.

    `sources` is a live view of the servers by id; whoever owns it may change it between requests. `providers` maps
    a strategy to its provider; the local one always answers. `usage` tells what a project chose before, and
    `changed_tools` is told when known tools have another definition.
    """

    def __init__(
        self,
        config: GatewayConfig,
        sources: Mapping[str, ToolSource],
        providers: Mapping[Strategy, SearchProvider],
        *,
        wall_clock: WallClock = time.time,
        clock: Clock = time.monotonic,
        patience: Patience = Patience(),  # noqa: B008 - frozen
        usage: UsageFigures = no_usage,
        changed_tools: ChangedTools = lambda server_id, names: None,
    ) -> None:
        self.rights = RightsIndex(config)
        self._sources = sources
        self._providers = providers
        self._wall_clock = wall_clock
        self._definitions = Definitions(changed_tools)
        self._lists = Lists(TOOLS, self._tools_of, sources, clock, patience)
        self._usage = usage

    def reconfigure(self, config: GatewayConfig) -> None:
        """From now on this configuration holds, for requests under way too."""
        self.rights = RightsIndex(config)
        self._lists.keep_only(config.servers)

    def identify(self, secret: str | None, project_named: str | None) -> Caller:
        """Raises UnauthorizedError, ForbiddenError."""
        return self.rights.identify(secret, project_named, self._wall_clock())

    def still_valid(self, caller: Caller) -> bool:
        """Whether a caller that was let in earlier would be let in now."""
        return self.rights.still_valid(caller, self._wall_clock())

    def usable_servers(self, caller: Caller) -> tuple[str, ...]:
        """What a caller may use now; nothing, once its token is revoked or has expired."""
        return self.rights.usable_servers(caller) if self.still_valid(caller) else ()

    async def collected(self, caller: Caller) -> Collected[KnownTool]:
        """The lists of all usable servers, permitted or not tool by tool."""
        return await self._lists.collect(lambda: self.usable_servers(caller), self.rights.config.limits.list_max_age_s)

    @property
    def searchable(self) -> bool:
        """Whether any caller can search: its project, or having none, has an `optimization`."""
        config = self.rights.config
        strategies = [project.optimization for project in config.projects.values()]
        return any((*strategies, config.unassigned.optimization))

    @property
    def learns(self) -> bool:
        """Whether what callers choose may change the order of results (`search.usage`)."""
        return self.rights.config.search.usage

    async def available(self, caller: Caller) -> Available:
        """Ask all usable servers at once for what is not known; one that is silent costs only its own tools."""
        collected = await self.collected(caller)
        return Available(self.permitted(caller, collected), notices.sentences(collected.gaps))

    def permitted(self, caller: Caller, collected: Collected[KnownTool]) -> tuple[KnownTool, ...]:
        tools: list[KnownTool] = []
        for server_id, part in collected.parts.items():
            permits = self.rights.permits(caller, server_id)
            tools.extend(tool for name, tool in part.items.items() if permits(name))
        return tuple(tools)

    async def search(
        self, caller: Caller, queries: Sequence[str], context: str | None, max_results: int, *, request_id: str = ""
    ) -> SearchOutcome:
        """The tools that fit, best first."""
        strategy = self.rights.strategy(caller)
        if strategy is None:
            return SearchOutcome((), notices.switched_off(caller.project_id), None, False)
        available = await self.available(caller)
        documents = tuple(tool.document for tool in available.tools)
        figures = self._usage(caller.project_id, queries) if self.learns else {}
        # Several queries share the places fairly already: there usage only changes the order.
        wanted = max_results + LOOK_BELOW if figures and len(queries) == 1 else max_results
        request = SearchRequest(tuple(queries), context, documents, wanted, caller.project_id, request_id)
        provider, hits, unavailable = await self._ask_providers(strategy, request)
        results = own_results(available.tools, hits, wanted, len(queries))
        if figures:
            results = lifted(results, figures)[:max_results]
        fitting = fitting_notice(results, hits, len(queries)) if available.tools else notices.NO_TOOLS
        told = [*available.notices, fitting] if fitting else list(available.notices)
        if unavailable is not None:
            told.append(notices.local_answered(str(unavailable)))
        code = unavailable.code if unavailable is not None else None
        return SearchOutcome(results, " ".join(told) or None, provider, unavailable is not None, code)

    async def overview(self, caller: Caller) -> str | None:
        """What the caller's servers do, in a few words; None: its project does not ask for that.

        Waits a moment for servers that were never heard, so that it says the same from the first time on. Of the
        others it takes the last list, however old, also while they restart.
        """
        if not self.rights.describes(caller) or self.rights.strategy(caller) is None:
            return None
        await self._lists.hear(self.usable_servers(caller))
        return described([self._last_known(caller, server_id) for server_id in self.usable_servers(caller)])

    async def resolve(self, caller: Caller, tool_key: str) -> KnownTool:
        """The tool that a key means for this caller, to the letter.

        Raises:
            UnknownToolError: there is none, or this caller may not use it; the two look the same.
            ServerUnavailableError: the caller may use it, but its server is not running or gives no list.
        """
        known = self.resolve_known(caller, tool_key)
        if known is not None:
            return known
        key = ToolKey.parse(tool_key)
        assert key is not None  # resolve_known has seen to it
        listed = self._lists.list_of(self._sources[key.server_id])
        answer = await self._lists.answer(listed, self.rights.config.limits.list_max_age_s)
        return self._settle(caller, key, _callable(listed, key, answer))

    def resolve_known(self, caller: Caller, tool_key: str) -> KnownTool | None:
        """`resolve` without waiting; None: the server has to be asked for its list first.

        Raises:
            UnknownToolError, ServerUnavailableError: as `resolve`.
        """
        key = ToolKey.parse(tool_key)
        if key is None or not self.rights.may_use_server(caller, key.server_id):
            raise UnknownToolError(tool_key)
        source = self._sources.get(key.server_id)
        if source is None or source.status.state != "running" or not self.rights.config.servers[key.server_id].enabled:
            return self._settle(caller, key, Silent("failed", _why_not_running(source)))
        max_age_s = self.rights.config.limits.list_max_age_s
        listed = self._lists.list_of(source)
        known = listed.known_item(key.tool_name, max_age_s) or listed.known(max_age_s, to_the_letter=True)
        # What is not known is fetched, forbidden or not, so that the time it takes tells nothing.
        return None if known is None else self._settle(caller, key, _callable(listed, key, known))

    def had(self, key: ToolKey) -> bool:
        """Whether the tool was in the last list that its server gave, true or not by now."""
        return self._lists.had(key.server_id, key.tool_name)

    def check_arguments(self, tool: KnownTool, arguments: object) -> Unproven | None:
        """As ArgumentCheck. Bundled servers are exempt: they answer with their own words."""
        return None if self.is_bundled(tool.server_id) else tool.check_arguments(arguments)

    def is_bundled(self, server_id: str) -> bool:
        """Whether the server is a part of Pointsman, and so is trusted with more than a stranger's."""
        server = self.rights.config.servers.get(server_id)
        return server is not None and server.bundled is not None

    async def close(self) -> None:
        """End what goes on in the background."""
        await self._lists.close()

    def _tools_of(
        self, source: ToolSource, entries: dict[str, Json], before: dict[str, KnownTool]
    ) -> dict[str, KnownTool]:
        known = tools_of(source, entries, before)
        read = {name: tool.digest for name, tool in known.items() if before.get(name) is not tool}
        self._definitions.note(source.id, read)
        return known

    def _settle(self, caller: Caller, key: ToolKey, known: KnownTool | Snapshot[KnownTool] | Silent) -> KnownTool:
        """Rights first, then the server's state, then the list: the order decides what a caller can find out."""
        rights = self.rights
        if not rights.may_use(caller, key.server_id, key.tool_name):
            raise UnknownToolError(str(key))
        if not self.still_valid(caller):
            raise UnknownToolError(str(key))
        if isinstance(known, KnownTool):
            return known
        if isinstance(known, Silent):
            raise ServerUnavailableError(key.server_id, known.reason)
        tool = known.items.get(key.tool_name)
        if tool is None:
            raise UnknownToolError(str(key))
        return tool

    def _last_known(self, caller: Caller, server_id: str) -> ServerTools:
        last = self._lists.last_list(server_id)
        permitted = self.rights.permits(caller, server_id)
        names = tuple(filter(permitted, last.items)) if last is not None else ()
        return ServerTools(display_name(server_id, self.rights.config.servers[server_id]), names)

    async def _ask_providers(
        self, strategy: Strategy, request: SearchRequest
    ) -> tuple[str, list[SearchHit], SearchUnavailableError | None]:
        """The strategy's provider; where it gives no answer, the local one, and why."""
        provider, local = self._providers[strategy], self._providers[LOCAL]
        if strategy == LOCAL:
            hits = await local.search(request)
            return _ranked_by(local, hits), hits, None
        asked = asyncio.ensure_future(provider.search(request))
        fallback: asyncio.Future[list[SearchHit]] | None = None
        try:
            answered, _ = await asyncio.wait({asked}, timeout=HEDGE_S)
            if not answered:
                fallback = asyncio.ensure_future(local.search(request))
            hits = await asked
        except SearchUnavailableError as error:
            hits = await (fallback or local.search(request))
            return _ranked_by(local, hits), hits, error
        finally:
            await _dropped(asked, fallback)
        return _ranked_by(provider, hits), hits, None


def _ranked_by(provider: SearchProvider, hits: list[SearchHit]) -> str:
    """What was really in use."""
    return (hits.ranked_by if isinstance(hits, SearchHits) else None) or provider.name


async def _dropped(*searches: asyncio.Future[list[SearchHit]] | None) -> None:
    """End searches that nothing waits for any more."""
    under_way = [search for search in searches if search is not None]
    for search in under_way:
        search.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


def _callable(
    listed: KnownList[KnownTool], key: ToolKey, answer: KnownTool | Snapshot[KnownTool] | Silent
) -> KnownTool | Snapshot[KnownTool] | Silent:
    """A server that is busy with a long call may not list its tools in time; its tools can be called all the same."""
    if isinstance(answer, Silent) and answer.kind == "timeout":
        return listed.last_item(key.tool_name) or answer
    return answer


def _why_not_running(source: ToolSource | None) -> str:
    if source is None:
        return "it is not running"
    status = source.status
    words = {"starting": "it is still starting", "failed": "it failed"}.get(status.state, "it is switched off")
    return f"{words} ({status.reason})" if status.reason else words
