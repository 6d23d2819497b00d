"""What the servers listed last, in this run or an earlier one: names, claimed effects, and how they are introduced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.effects import Effect
from pointsman.catalog.lists.cached_list import Snapshot
from pointsman.catalog.lists.list_cache import ListCache
from pointsman.catalog.names import display_name
from pointsman.catalog.overview import (
    MAX_KEPT_NAMES,
    NameMemory,
    ServerTools,
    ServerWords,
    WordCache,
    describe_servers,
    kept_names,
    plain_name,
    telling_words,
    write_instructions,
)
from pointsman.catalog.pins import Admission
from pointsman.catalog.rights import RightsIndex
from pointsman.catalog.scan.definition_watch import Definition, Named, defined, held_back
from pointsman.catalog.tool_keys import ServerNames, may_still_list
from pointsman.core.model import Caller, ToolSource


class LastLists:
    """`lists` has the lists of this run, `memory` the names of tools across restarts."""

    def __init__(self, lists: ListCache[KnownTool], memory: NameMemory) -> None:
        self._lists = lists
        self.memory = memory
        self._words = WordCache()

    def reconfigure(self) -> None:
        """Forget what was computed with the rights and names of an earlier configuration."""
        self._words.clear()

    def of(self, server_id: str) -> Snapshot[KnownTool] | None:
        """The last list that the server gave in this run, however old."""
        return self._lists.last_list(server_id)

    def note(self, server_id: str, tools: Mapping[str, KnownTool]) -> None:
        """Remember the names in a list across restarts."""
        for_apps = [name for name, tool in tools.items() if tool.for_apps_only]
        claims: dict[str, Effect] = {name: tool.claimed for name, tool in tools.items()}
        self.memory.note_tool_names(server_id, tools, for_apps, claims)

    def definitions(self, server_id: str, admission: Admission) -> dict[Named, Definition]:
        """The tools of a server, and those that wait for approval, with prompts and templates that do."""
        last = self.of(server_id)
        tools: dict[Named, Definition] = (
            {} if last is None else {("tool", name): defined(tool) for name, tool in last.items.items()}
        )
        for one in admission.held(server_id):
            if one.kind != "instructions":
                tools[one.kind, one.name] = held_back(one)
        return tools

    def names(self, rights: RightsIndex, server_id: str) -> Collection[str] | None:
        """The names in the last list of an enabled server; None: they are not known."""
        server = rights.config.servers.get(server_id)
        if server is None or not server.enabled:
            return None
        last = self.of(server_id)
        if last is not None:
            return last.items
        kept = self.memory.tool_names(server_id)
        return kept if 0 < len(kept) < MAX_KEPT_NAMES else None  # of more names not all are kept

    def names_for(self, rights: RightsIndex, caller: Caller, server_id: str, source: ToolSource | None) -> ServerNames:
        """The names of a server's tools for one caller."""
        expected = bool(self.memory.tool_names(server_id)) or may_still_list(source)
        return ServerNames(self.names(rights, server_id), self.permits_models(rights, caller, server_id), expected)

    def traits(self, server_id: str, tool_name: str, tool: KnownTool | None = None) -> tuple[bool, Effect]:
        """Whether a tool is for apps only, and the effect that it claims. `tool` is its definition, if it is known."""
        last = self.of(server_id)
        if tool is None and last is None:
            claimed = self.memory.claims(server_id).get(tool_name, "destructive")
            return tool_name in self.memory.app_tool_names(server_id), claimed
        if tool is None and last is not None:
            tool = last.items.get(tool_name)
        return (tool.for_apps_only, tool.claimed) if tool is not None else (False, "destructive")

    def permits_models(self, rights: RightsIndex, caller: Caller, server_id: str) -> Callable[[str], bool]:
        """Whether the caller may use a tool of that name, and a model may see it."""
        permits = rights.permits(caller, server_id)

        def permitted(tool_name: str) -> bool:
            for_apps, claimed = self.traits(server_id, tool_name)
            return not for_apps and permits(tool_name, claimed)

        return permitted

    def other_projects(self, rights: RightsIndex, caller: Caller) -> list[str]:
        """The other projects of the caller's token in which a tool is open to it, as far as the lists are known."""
        found = rights.other_projects(caller)
        return [one for one in found if self._may_have_tools(rights, Caller(caller.token_id, one))]

    def _may_have_tools(self, rights: RightsIndex, caller: Caller) -> bool:
        for server_id in rights.tool_servers(caller):
            names = self.names(rights, server_id)
            if names is None or any(map(self.permits_models(rights, caller, server_id), names)):
                return True
        return False

    async def wait_for_first(self, servers: Sequence[str], *, or_remembered: bool = False) -> None:
        """Wait briefly for servers that have not listed their tools yet; `or_remembered`: in an earlier run either."""
        remembered = self.memory.tool_names if or_remembered else lambda server_id: ()
        await self._lists.wait_for_first_lists([one for one in servers if not remembered(one)])

    def describe(self, rights: RightsIndex, caller: Caller, servers: Sequence[str]) -> str | None:
        """What the servers do, in a few words, for the description of `tool_discovery`."""
        return describe_servers([self._tools_of(rights, caller, server_id) for server_id in servers])

    def instructions(self, rights: RightsIndex, caller: Caller, servers: Sequence[str]) -> str:
        """The instructions of the handshake, with the names of the servers and the words of their tools."""
        return write_instructions([self._words_of(rights, caller, server_id) for server_id in servers])

    def _tools_of(self, rights: RightsIndex, caller: Caller, server_id: str) -> ServerTools:
        last = self.of(server_id)
        permitted = self.permits_models(rights, caller, server_id)
        names = tuple(filter(permitted, last.items)) if last is not None else ()
        return ServerTools(_plain_name(rights, server_id), names)

    def _words_of(self, rights: RightsIndex, caller: Caller, server_id: str) -> ServerWords:
        """The words are the same for all callers with the same rights."""
        last, grant = self.of(server_id), rights.tool_grant(caller, server_id)
        names = last.items if last is not None else self.memory.tool_names(server_id)
        permitted, name = self.permits_models(rights, caller, server_id), _plain_name(rights, server_id)

        def compute() -> ServerWords:
            return ServerWords(name, telling_words(name, filter(permitted, kept_names(names))))

        return self._words.get(grant, names, compute)


def _plain_name(rights: RightsIndex, server_id: str) -> str:
    return plain_name(display_name(server_id, rights.config.servers[server_id])) or server_id
