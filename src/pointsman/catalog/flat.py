"""`exposure: flat`: lists every usable tool under its own name, and resolves such a name to the tool."""

from __future__ import annotations

import logging

from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.names import HAS_THE_NAME, HAS_THE_PREFIX, prefix_of
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.errors import ServerUnavailableError, UnknownToolError
from pointsman.core.model import Caller, Json, ToolKey

logger = logging.getLogger(__name__)

MAX_LOGGED = 1_000  # name clashes, each logged once


class FlatTools:
    def __init__(self, catalog: ToolCatalogService) -> None:
        self._catalog = catalog
        self._logged: set[tuple[str, str, str]] = set()

    def named(self, caller: Caller, tools: tuple[KnownTool, ...]) -> dict[str, KnownTool]:
        """The caller's tools by the names that it sees, in their order."""
        servers = self._catalog.rights.servers_of(caller)
        prefixes = {server_id: prefix_of(server_id, server) for server_id, server in servers.items()}
        named: dict[str, KnownTool] = {}
        for tool in tools:
            prefix = prefixes.get(tool.server_id)
            if prefix is None:  # removed by a reload in the meantime
                continue
            name = prefix + tool.tool_name
            first = named.get(name)
            if first is not None:
                self._log_hidden(name, tool.server_id, first.server_id, HAS_THE_NAME)
            elif self._is_free(caller, name, tool.server_id):
                named[name] = tool
        return named

    def keys(self, caller: Caller, name: str) -> list[ToolKey]:
        """The tools that `name` may stand for, in the order of the configuration."""
        return [ToolKey(*owner) for owner in self._catalog.rights.names_of(caller).owners(name)]

    async def resolve(self, caller: Caller, name: str) -> KnownTool:
        """The tool of that name.

        Raises:
            UnknownToolError: there is none, or the caller may not use it; the two are indistinguishable.
            ServerUnavailableError: its server, or one that may have it, is not running or gave no list.
        """
        keys = self.keys(caller, name)
        unavailable: ServerUnavailableError | None = None
        for key in keys:
            try:
                return await self._catalog.resolve(caller, str(key))
            except UnknownToolError:
                continue
            except ServerUnavailableError as error:
                if self._catalog.was_listed(key):  # the name belongs to this server; no other may get the call
                    raise
                unavailable = unavailable or error
        raise unavailable or UnknownToolError(name)

    def known_schema(self, caller: Caller, name: str) -> Json | None:
        """The inputSchema of a tool whose list is cached; never waits."""
        for key in self.keys(caller, name):
            try:
                tool = self._catalog.resolve_known(caller, str(key))
            except (UnknownToolError, ServerUnavailableError):
                continue
            return None if tool is None else tool.tool.get("inputSchema")
        return None

    def _is_free(self, caller: Caller, name: str, server_id: str) -> bool:
        """Whether no other server owns the name: by its prefix, or by its place in the configuration, even if down."""
        keys = self.keys(caller, name)
        if all(key.server_id != server_id for key in keys):
            self._log_hidden(name, server_id, keys[0].server_id, HAS_THE_PREFIX)
            return False
        for key in keys:
            if key.server_id == server_id:
                return True
            if self._catalog.was_listed(key) and self._catalog.may_use(caller, key):
                self._log_hidden(name, server_id, key.server_id, HAS_THE_NAME)
                return False
        return True

    def _log_hidden(self, name: str, server_id: str, owner: str, why: str) -> None:
        clash = (name, owner, server_id)
        if clash in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(clash)
        logger.warning("tool %.200r of server %s is hidden: %s", name, server_id, why.format(owner))
