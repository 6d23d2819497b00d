"""Scans the tools of all servers when a list changes, in the background, and keeps and logs what was flagged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from pointsman.catalog.definitions import KnownTool, quote_names
from pointsman.catalog.pins import Held
from pointsman.catalog.scan import Flag, scan_hidden, scan_names, scan_tool
from pointsman.core.model import Json
from pointsman.core.rounds import giving_way

DEBOUNCE_S: Final = 1.0  # servers start together, and one may change its list often
MOST_DELAYS: Final = 5  # by lists that come meanwhile, or by searches


class Definition(NamedTuple):
    tool: Json
    digest: bytes
    hidden: tuple[Flag, ...] | None  # None: nothing was removed from it yet


ToolLists = Mapping[str, Mapping[str, Definition]]
"""The last list of each server, by its id."""

_Scanned = dict[tuple[str, str], tuple[bytes, tuple[Flag, ...]]]  # by server and tool: the digest, and its passages

logger = logging.getLogger(__name__)


def defined(tool: KnownTool) -> Definition:
    return Definition(tool.tool, tool.digest, tool.hidden)


def held_back(held: Held) -> Definition:
    return Definition(held.entry, held.digests.whole, None)


class DefinitionWatch:
    """`run` it as a task, and tell it of each list with `listed`. `flags` has what was found last, by server."""

    def __init__(self, lists: Callable[[], ToolLists], trusted: Callable[[], Collection[str]]) -> None:
        """`trusted`: servers of which nothing is flagged, because they are part of Pointsman."""
        self._lists = lists
        self._trusted = trusted
        self.flags: Mapping[str, Sequence[Flag]] = {}
        self._scanned: _Scanned = {}
        self._seen: Mapping[str, Mapping[str, bytes]] = {}
        self._logged: frozenset[tuple[str, bytes, Flag]] = frozenset()
        self._wake = asyncio.Event()
        self._searches = 0  # under way
        self._scanning = asyncio.Lock()

    def listed(self) -> None:
        """A server gave a list."""
        self._wake.set()

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """For a search: the first one prepares all tools, and a scan would take turns with it."""
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            for _ in range(MOST_DELAYS):
                self._wake.clear()
                await asyncio.sleep(DEBOUNCE_S)
                if not self._wake.is_set() and not self._searches:
                    break
            await self.refresh()

    async def refresh(self) -> None:
        """Scan what has changed since the last time, on a thread."""
        async with self._scanning:
            lists = self._lists()
            seen = {one: {name: tool.digest for name, tool in tools.items()} for one, tools in lists.items()}
            if seen == self._seen:
                return
            self.flags, self._scanned = await asyncio.to_thread(_scan_giving_way, lists, self._scanned, self._trusted())
            self._seen = seen
            self._log(seen)

    def _log(self, seen: Mapping[str, Mapping[str, bytes]]) -> None:
        """Log each flag once for each definition."""
        now = frozenset((one, seen[one][flag.tool], flag) for one, flags in self.flags.items() for flag in flags)
        new = now - self._logged
        self._logged = now
        for server_id in sorted({server_id for server_id, _, _ in new}):
            names = sorted({flag.tool for owner, _, flag in new if owner == server_id})
            count = "1 tool" if len(names) == 1 else f"{len(names)} tools"
            logger.warning(
                "server %s has %s to read before you trust it: %s; `pointsman doctor` says why",
                *(server_id, count, quote_names(names)),
            )


def _scan_giving_way(
    lists: ToolLists, before: _Scanned, trusted: Collection[str]
) -> tuple[dict[str, Sequence[Flag]], _Scanned]:
    with giving_way():
        return _scan(lists, before, trusted)


def _scan(lists: ToolLists, before: _Scanned, trusted: Collection[str]) -> tuple[dict[str, Sequence[Flag]], _Scanned]:
    """Passages are scanned once for each definition, names each time: they depend on the other servers."""
    scanned: _Scanned = {}
    flags: dict[str, list[Flag]] = {}
    for server_id, tools in lists.items():
        for name, tool in tools.items() if server_id not in trusted else ():
            known = before.get((server_id, name))
            if known is None or known[0] != tool.digest:
                hidden = scan_hidden(name, tool.tool) if tool.hidden is None else tool.hidden
                known = (tool.digest, hidden + scan_tool(name, tool.tool))
            scanned[server_id, name] = known
            flags.setdefault(server_id, []).extend(known[1])
    plain = {server_id: {name: tool.tool for name, tool in tools.items()} for server_id, tools in lists.items()}
    for server_id, found in scan_names(plain).items():
        if server_id not in trusted:
            flags[server_id].extend(found)
    return {server_id: found for server_id, found in flags.items() if found}, scanned
