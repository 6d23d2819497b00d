"""The catalog: what a caller can use right now, what of it fits a request, and which tool a key means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pointsman.catalog.apps import has_app
from pointsman.catalog.definitions import (
    ChangedTools,
    DefinitionHistory,
    KnownTool,
    build_tools,
    bundled_servers,
    check_unchanged,
    tools_not_configured,
)
from pointsman.catalog.identities import Identities
from pointsman.catalog.lists.cached_list import CachedList, Clock, ListFailure, ListWaits, Snapshot
from pointsman.catalog.lists.last_lists import LastLists
from pointsman.catalog.lists.list_cache import Collected, ListCache
from pointsman.catalog.lists.starts import is_expected, wait_for_start, why_not_running
from pointsman.catalog.overview import (
    INSTRUCTIONS,
    INSTRUCTIONS_WITHOUT_DISCOVERY,
    INSTRUCTIONS_WITHOUT_SERVERS,
    NameMemory,
    NoNameMemory,
)
from pointsman.catalog.pins import Admission, NoPins, unread_servers
from pointsman.catalog.results import (
    EXTRA_CANDIDATES,
    Available,
    SearchOutcome,
    SearchResult,
    UsageFigures,
    accept_hits,
    best_of_each_first,
    held_tools,
    no_tools_notice,
    no_usage,
    outcome_of,
    rank_by_usage,
    switched_off_notice,
)
from pointsman.catalog.rights import RightsIndex
from pointsman.catalog.scan.definition_watch import Definition, DefinitionWatch, Named
from pointsman.catalog.tool_keys import KeyForm, KeyIndex, ServerNames, read_key
from pointsman.config.model import GatewayConfig, Strategy
from pointsman.core.errors import NOT_RUN, TRY_LATER, ServerUnavailableError, UnknownToolError
from pointsman.core.kinds import TOOLS
from pointsman.core.model import Caller, Json, ToolKey, ToolSource, WallClock
from pointsman.providers.base import SearchProvider, SearchRequest
from pointsman.providers.fallback import Ranking, rank_with

LOCAL: Strategy = "bm25"  # the provider that always answers
MAX_RESTARTS = 3  # that one call waits for, of a server that ends again before it has listed its tools


class ToolCatalogService:
    """Collects tools at request time from all servers that a caller may use, filters, searches and resolves them.

    `sources` is a live view of the servers by id; its owner may change it between requests. `providers` maps a
    strategy to its provider; the local one always answers. `usage` returns what a project chose before, `changed_tools`
    is called when the definition of known tools changes, `names` keeps the tools' names across restarts, and
    `identities` are the callers that have signed in.
    """

    def __init__(
        self,
        config: GatewayConfig,
        sources: Mapping[str, ToolSource],
        providers: Mapping[Strategy, SearchProvider],
        *,
        wall_clock: WallClock = time.time,
        clock: Clock = time.monotonic,
        waits: ListWaits = ListWaits(),  # noqa: B008 - frozen
        usage: UsageFigures = no_usage,
        changed_tools: ChangedTools = lambda server_id, names: None,
        names: NameMemory = NoNameMemory(),  # noqa: B008 - has no state
        admission: Admission = NoPins(),  # noqa: B008 - has no state
        identities: Identities | None = None,
    ) -> None:
        self.identities = identities or Identities()  # without a source nobody can sign in
        self.rights = self._index(config)
        self.bundled_servers = bundled_servers(config)
        self._not_configured = tools_not_configured(config)
        self._sources = sources
        self._providers = providers
        self._wall_clock = wall_clock
        self._history = DefinitionHistory(changed_tools)
        self.admission = admission
        self._lists = ListCache(TOOLS, self._build_tools, sources, clock, waits, self._note_list, admission)
        self._last = LastLists(self._lists, names)
        self.watch = DefinitionWatch(self._definitions, lambda: self.bundled_servers)
        self._usage = usage
        self._key_index = KeyIndex()
        self._reconfigured = asyncio.Event()  # replaced each time

    def reconfigure(self, config: GatewayConfig) -> None:
        """Apply a configuration, also to requests under way."""
        self.rights = self._index(config)
        bundled, not_configured = self.bundled_servers, self._not_configured
        self.bundled_servers, self._not_configured = bundled_servers(config), tools_not_configured(config)
        rebuilt = {server_id for server_id, _ in not_configured.items() ^ self._not_configured.items()}
        self._lists.keep_only(config.servers.keys() - rebuilt - (bundled ^ self.bundled_servers))
        self._key_index.keep_only(config.servers)
        self._last.reconfigure()
        self._reconfigured.set()
        self._reconfigured = asyncio.Event()

    def identify(self, token: str | None, project: str | None) -> Caller:
        """Raises UnauthorizedError, ForbiddenError."""
        return self.rights.identify(token, project, self._wall_clock(), sole_project=True)

    def callers_of(self, token: str) -> list[Caller]:
        """All callers that a token may act as. Raises UnauthorizedError."""
        return self.rights.callers_of(self.rights.verify(token, self._wall_clock()))

    async def sign_in(self, token: str | None) -> None:
        """Verify an access token that is neither in the YAML nor known yet, so that `identify` finds it.

        Raises UnauthorizedError, ForbiddenError.
        """
        if token and self.rights.tokens.find(token) is None:
            await self.identities.sign_in(token)

    def identities_changed(self) -> None:
        """Forget what was computed of the rights of identities, after a source has changed or revoked some."""
        self.rights = self._index(self.rights.config)

    def _index(self, config: GatewayConfig) -> RightsIndex:
        return RightsIndex(config, self.identities if self.identities.sources else None)

    def still_valid(self, caller: Caller) -> bool:
        """Whether a caller that was identified earlier would be accepted now."""
        return self.rights.still_valid(caller, self._wall_clock())

    def usable_servers(self, caller: Caller) -> tuple[str, ...]:
        """The servers that a caller may use now; none once its token is revoked or has expired."""
        return self.rights.usable_servers(caller) if self.still_valid(caller) else ()

    def tool_servers(self, caller: Caller) -> tuple[str, ...]:
        """Those of `usable_servers` that may have a tool for the caller; for tools the others do not exist."""
        return self.rights.tool_servers(caller) if self.still_valid(caller) else ()

    def readable_servers(self, caller: Caller) -> tuple[str, ...]:
        """Those of `usable_servers` whose resources, prompts and skills the caller may read."""
        return self.rights.readable_servers(caller) if self.still_valid(caller) else ()

    async def collected(self, caller: Caller) -> Collected[KnownTool]:
        """The tool lists of all servers that may have a tool for the caller, before each tool is judged."""
        limits = self.rights.config.limits
        return await self._lists.collect(
            lambda: self.tool_servers(caller), limits.list_max_age_s, limits.first_list_s, last_lists=True
        )

    @property
    def searchable(self) -> bool:
        """Whether any caller can search: at least one project, or `unassigned`, has an `optimization`."""
        config = self.rights.config
        strategies = [project.optimization for project in config.projects.values()]
        return any((*strategies, config.unassigned.optimization))

    @property
    def learns(self) -> bool:
        """Whether the tools that callers choose may change the order of results (`search.usage`)."""
        return self.rights.config.search.usage

    async def available(self, caller: Caller) -> Available:
        """The tools that a caller may use and a model may see, and the servers whose tools are missing."""
        collected = await self.collected(caller)
        tools = tuple([tool for tool in self.permitted(caller, collected) if not tool.for_apps_only])
        held = held_tools(collected.parts, lambda server_id: self.rights.permits(caller, server_id))
        return Available(tools, collected.gaps, held, unread_servers(self.admission, held))

    def permitted(self, caller: Caller, collected: Collected[KnownTool]) -> tuple[KnownTool, ...]:
        """The tools that the caller may use."""
        parts = collected.parts.items()
        return tuple([tool for one, part in parts for tool in self.rights.permitted(caller, one, part.items)])

    async def search(
        self,
        caller: Caller,
        queries: Sequence[str],
        context: str | None,
        max_results: int,
        *,
        least_each: int = 1,
        request_id: str = "",
    ) -> SearchOutcome:
        """The tools that fit, best first, and of several queries the best of each before all others.

        `least_each` of them are returned for each of several queries, as far as `max_results` allows.
        """
        strategy = self.rights.strategy(caller)
        if strategy is None:
            return SearchOutcome((), switched_off_notice(caller.project_id), None, False)
        available = await self.available(caller)
        documents = tuple([tool.document for tool in available.tools])
        figures = self._usage(caller.project_id, queries) if self.learns else {}
        # Several queries already share the results fairly, so usage only changes their order.
        wanted = max_results + EXTRA_CANDIDATES if figures and len(queries) == 1 else max_results
        request = SearchRequest(
            *(tuple(queries), context, documents, wanted, caller.project_id, request_id),
            explain=False,
            least_each=least_each if len(queries) > 1 else 1,
        )
        with self.watch.postponed():
            ranking = await rank_with(self._providers[strategy], self._providers[LOCAL], request)
        results = accept_hits(available.tools, ranking.hits, wanted, queries)
        if figures:
            results = rank_by_usage(results, figures)[:max_results]
        if len(queries) > 1:
            results = best_of_each_first(results)
        no_tools = None if available.tools else self._why_no_tools(caller, available)
        return outcome_of(results, ranking, available, queries, no_tools)

    async def trial(
        self, caller: Caller, request: SearchRequest, provider: SearchProvider | Strategy | None = None
    ) -> tuple[Ranking, tuple[SearchResult, ...]]:
        """A ranking, and its results in the order of an answer: without usage.

        The tools of the request are the caller's. `provider` is another one than that of the caller's project.
        """
        available = await self.available(caller)
        asked = replace(request, tools=tuple([tool.document for tool in available.tools]), project_id=caller.project_id)
        if provider is None or isinstance(provider, str):
            provider = self._providers[provider or self.rights.strategy(caller) or LOCAL]
        ranking = await rank_with(provider, self._providers[LOCAL], asked)
        results = accept_hits(available.tools, ranking.hits, request.max_results, request.queries)
        return ranking, best_of_each_first(results) if len(request.queries) > 1 else results

    async def overview(self, caller: Caller) -> str | None:
        """What the caller's servers do, in a few words; None unless its project has `describe_catalog`.

        Waits briefly for servers that have not listed their tools yet, so that the text is complete from the first
        time on. Of the others it takes the last list, however old, even while they restart.
        """
        if not self.rights.describes(caller) or self.rights.strategy(caller) is None:
            return None
        await self._last.wait_for_first(self.tool_servers(caller))
        return self._last.describe(self.rights, caller, self.tool_servers(caller))

    async def instructions(self, caller: Caller) -> str | None:
        """The instructions of the handshake; None for a project that exposes all tools by name.

        They name the caller's servers, unless its project switched that off. The servers' names come from their last
        list, or from the last run. Waits briefly for running servers of which neither is known.
        """
        rights = self.rights
        if rights.is_flat(caller):
            return None
        if rights.strategy(caller) is None:
            return INSTRUCTIONS_WITHOUT_DISCOVERY
        usable = self.tool_servers(caller)
        if not usable:
            return INSTRUCTIONS_WITHOUT_SERVERS
        if not rights.instructs(caller):
            return INSTRUCTIONS
        await self._last.wait_for_first(usable, or_remembered=True)
        return self._last.instructions(self.rights, caller, self.tool_servers(caller))

    async def resolve(self, caller: Caller, tool_key: str) -> KnownTool:
        """The tool of exactly this key, if the caller may use it.

        Waits for a server that is being started for the first time, no longer than a discovery does, and for one that
        is restarting. If that one had the tool in its last list, the tool has to be unchanged; so it has if the request
        for its list shows that it was restarted.

        Raises:
            UnknownToolError: there is none, or the caller may not use it; the two are indistinguishable.
            ServerUnavailableError: the caller may use it, but its server is not running or gave no list, or it has
                restarted without the tool or with another definition of it.
        """
        known = self.resolve_known(caller, tool_key)
        if known is not None:
            return known
        key = ToolKey.parse(tool_key)
        assert key is not None  # resolve_known raises for others
        source, permitted = self._sources[key.server_id], self._may_use(caller, key)
        listed = self._lists.list_of(source)
        if source.status.state != "running":
            last = listed.list_before_restart()
            before = last.items.get(key.tool_name) if last else None
            return await self._resolve_when_back(caller, key, before, permitted)
        before, session = listed.last_item(key.tool_name), source.session
        answer = await self._lists.fetch_for_item(listed, self.rights.config.limits.list_max_age_s)
        if source.session is not session:
            if isinstance(answer, ListFailure):
                return await self._resolve_when_back(caller, key, before, permitted)
            if before is not None and self._may_use(caller, key, before):
                self._check_unchanged(key, before, answer)
        return self._authorize(caller, key, answer, listed)

    async def resolve_again(self, caller: Caller, tool: KnownTool) -> None:
        """Wait until a tool whose server has gone away can be called as it was.

        Raises:
            UnknownToolError, ServerUnavailableError: as `resolve`.
        """
        await self._resolve_when_back(caller, ToolKey(tool.server_id, tool.tool_name), tool, permitted=True)

    async def _resolve_when_back(
        self, caller: Caller, key: ToolKey, before: KnownTool | None, permitted: bool, restarts: int = MAX_RESTARTS
    ) -> KnownTool:
        """The tool once its server runs; `before` is its definition until now, if there was one.

        Waits even for a forbidden tool, so that the timing reveals nothing, unless it was `permitted` at first.
        """
        await self._wait_for_start(caller, key, permitted)
        source = self._sources.get(key.server_id)  # a reload may have replaced it
        if source is not None and source.restarting and restarts > 1:  # it came back, and has gone away again
            return await self._resolve_when_back(caller, key, before, permitted, restarts - 1)
        if source is None or source.status.state != "running":
            return self._authorize(caller, key, _not_running(source))
        listed, session = self._lists.list_of(source), source.session
        answer = await self._lists.fetch_for_item(listed, self.rights.config.limits.list_max_age_s)
        if isinstance(answer, ListFailure) and source.session is not session and restarts > 1:
            return await self._resolve_when_back(caller, key, before, permitted, restarts - 1)
        if before is not None and isinstance(answer, Snapshot) and self._may_use(caller, key, before):
            self._check_unchanged(key, before, answer)
        return self._authorize(caller, key, answer, listed)

    def _check_unchanged(self, key: ToolKey, before: KnownTool, answer: Snapshot[KnownTool]) -> None:
        """Raises ServerUnavailableError."""
        now = answer.items.get(key.tool_name)
        waiting = (one.name for one in self.admission.held(key.server_id) if one.kind == "tool")
        held = now is None and key.tool_name in waiting
        check_unchanged(before, now, held=held)

    async def _wait_for_start(self, caller: Caller, key: ToolKey, permitted: bool) -> None:
        """Wait for the server of a tool, or until a reload forbids a tool that was `permitted`."""
        source, first_list_s = self._sources.get(key.server_id), self.rights.config.limits.first_list_s
        started = asyncio.ensure_future(wait_for_start(source, first_list_s))
        try:
            while not started.done() and (self._may_use(caller, key) or not permitted):
                reconfigured = asyncio.ensure_future(self._reconfigured.wait())
                try:
                    await asyncio.wait((started, reconfigured), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    reconfigured.cancel()
        finally:
            started.cancel()

    def resolve_known(self, caller: Caller, tool_key: str) -> KnownTool | None:
        """`resolve` without waiting; None: the server's list has to be fetched first.

        Raises:
            UnknownToolError, ServerUnavailableError: as `resolve`.
        """
        rights, key = self.rights, ToolKey.parse(tool_key)
        grant = rights.tool_grant(caller, key.server_id) if key is not None else None
        if key is None or grant is None:
            raise UnknownToolError(tool_key)
        source = self._sources.get(key.server_id)
        if source is None or source.status.state != "running":
            if source is not None and is_expected(source):
                return None
            return self._authorize(caller, key, _not_running(source))
        max_age_s = rights.list_max_age_s
        listed = self._lists.list_of(source)
        tool = listed.cached_item(key.tool_name, max_age_s)
        reached = tool is not None and (not tool.for_apps_only or rights.reaches_app_tools(caller))
        permitted = tool is not None and (grant.allows_all or grant.allows(key.tool_name, tool.claimed))
        if reached and permitted and rights.still_valid(caller, self._wall_clock()):
            return tool
        # From here on a forbidden tool and a missing one take the same time.
        found = listed.cached(max_age_s, exact_ttl=True)
        return None if found is None else self._authorize(caller, key, found, listed)

    def names_usable_server(self, caller: Caller, tool_key: str) -> bool:
        """Whether a text has the form of a key, with an enabled server of the caller's tools, running or not."""
        key = ToolKey.parse(tool_key)
        return key is not None and self._has_server(caller, key.server_id)

    async def read_key(self, caller: Caller, text: str) -> tuple[ToolKey, KeyForm] | None:
        """The one tool that a text in another form than a key can mean; None: it means nothing.

        Counts over all tools that the caller may use, those of servers that are down included.

        Raises:
            UnknownToolError: it can mean several tools.
        """
        await self.collected(caller)
        return read_key(text, self._known_names(caller))

    def nearest_keys(self, caller: Caller, text: str) -> list[str]:
        """The keys of the caller's tools that are written most like `text`, best first; without waiting."""
        return self._key_index.nearest(text, self._known_names(caller))

    def _has_server(self, caller: Caller, server_id: str) -> bool:
        """Whether the server may have a tool for the caller, and is enabled, running or not."""
        return self.rights.tool_grant(caller, server_id) is not None

    def may_use(self, caller: Caller, key: ToolKey) -> bool:
        """Whether the caller may use the tool, as its server last listed it."""
        return self._has_server(caller, key.server_id) and self._may_use(caller, key)

    def _may_use(self, caller: Caller, key: ToolKey, tool: KnownTool | None = None) -> bool:
        """Whether the caller may use a tool of that key; one for apps only is to most callers like a forbidden one.

        `tool` is its definition, by default the last known one.
        """
        for_apps, claimed = self._last.traits(key.server_id, key.tool_name, tool)
        if not self.rights.may_use(caller, key.server_id, key.tool_name, claimed) or not self.still_valid(caller):
            return False
        return not for_apps or self.rights.reaches_app_tools(caller)

    def was_listed(self, key: ToolKey) -> bool:
        """Whether the last known list of an enabled server, of this run or an earlier one, has the tool."""
        return key.tool_name in (self._last.names(self.rights, key.server_id) or ())

    async def close(self) -> None:
        """Cancel the background work and wait for its end."""
        await self._lists.close()

    def _build_tools(
        self, source: ToolSource, entries: dict[str, Json], before: dict[str, KnownTool]
    ) -> dict[str, KnownTool]:
        bundled, not_configured = source.id in self.bundled_servers, self._not_configured.get(source.id, ())
        tools = build_tools(source, entries, before, bundled=bundled, not_configured=not_configured)
        new = {name: tool.digest for name, tool in tools.items() if before.get(name) is not tool}
        if not self.admission.reports_changes(source.id):
            self._history.record(source.id, new)
        return tools

    def _note_list(self, server_id: str, tools: Mapping[str, KnownTool]) -> None:
        self._last.note(server_id, tools)
        self.watch.listed()

    def _definitions(self) -> dict[str, dict[Named, Definition]]:
        """The tools of all enabled servers, and those that wait for approval, with prompts and templates that do."""
        enabled = [server_id for server_id, server in self.rights.config.servers.items() if server.enabled]
        return {server_id: self._last.definitions(server_id, self.admission) for server_id in enabled}

    def _authorize(
        self,
        caller: Caller,
        key: ToolKey,
        found: Snapshot[KnownTool] | ListFailure,
        listed: CachedList[KnownTool] | None = None,
    ) -> KnownTool:
        """The tool, if the caller may use it. A forbidden tool and one that is not in the list have the same answer.

        Without a list the last known one counts, and without that one the answer is the same for all names. A server
        that is busy with a long call may fail to list its tools in time; those of its last list can still be called.
        """
        tool: KnownTool | None = None
        if isinstance(found, Snapshot):
            tool = found.items.get(key.tool_name)
        elif listed is not None and found.kind == "timeout":
            tool = listed.last_item(key.tool_name)
        permitted = self._may_use(caller, key, tool)
        if tool is not None and permitted:
            return tool
        if isinstance(found, ListFailure) and self.still_valid(caller) and self._has_server(caller, key.server_id):
            names = self._last.names(self.rights, key.server_id)
            if names is None or (permitted and key.tool_name in names):
                raise ServerUnavailableError(key.server_id, found.reason, found.advice)
        raise UnknownToolError(str(key))

    def known_tools(self, caller: Caller) -> list[Json]:
        """The definitions of the tools that a caller may use and a model may see, from the last lists, however old."""
        tools: list[Json] = []
        for server_id in self.tool_servers(caller):
            last = self._last.of(server_id)
            permitted = self.rights.permitted(caller, server_id, last.items) if last is not None else ()
            tools += [one.tool for one in permitted if not one.for_apps_only]
        return tools

    async def fetched(self, server_id: str) -> Snapshot[KnownTool] | ListFailure:
        """The list of one server, as it is now. Waits no longer than a list may take."""
        source = self._sources.get(server_id)
        if source is None or source.status.state != "running":
            return _not_running(source)
        return await self._lists.fetch_now(self._lists.list_of(source))

    def last_list(self, server_id: str) -> Snapshot[KnownTool] | None:
        """The last list that the server gave, however old."""
        return self._last.of(server_id)

    def may_have_apps(self, caller: Caller) -> bool:
        """Whether a tool of this caller has a page to show, or a server has not listed its tools yet."""
        for server_id in self.tool_servers(caller):
            last = self._last.of(server_id)
            if last is None or any(has_app(one.tool) for one in self.rights.permitted(caller, server_id, last.items)):
                return True
        return False

    def _known_names(self, caller: Caller) -> dict[str, ServerNames]:
        """The last known list of each enabled server that the caller may use."""
        servers, sources = self.tool_servers(caller), self._sources
        return {one: self._last.names_for(self.rights, caller, one, sources.get(one)) for one in servers}

    def _why_no_tools(self, caller: Caller, available: Available) -> str | None:
        projects, others = self.rights.project_ids(caller.token_id), self._last.other_projects(self.rights, caller)
        servers, untrusted = self.usable_servers(caller), self.rights.lacks_trust(caller)
        return no_tools_notice(caller.project_id, servers, available, projects, others, untrusted=untrusted)


def _not_running(source: ToolSource | None) -> ListFailure:
    signs_in = source is not None and source.status.sign_in
    return ListFailure("failed", why_not_running(source), NOT_RUN if signs_in else TRY_LATER)
