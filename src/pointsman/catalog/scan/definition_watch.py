"""Scans the definitions of all servers when a list changes, in the background, and keeps and logs what was flagged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from msgspec.structs import replace

from pointsman.catalog.definitions import KnownTool, quote_names
from pointsman.catalog.pins import Held, PinnedKind
from pointsman.catalog.scan.scan import Flag, scan_hidden, scan_names, scan_tool
from pointsman.core.model import Json
from pointsman.core.rounds import giving_way

DEBOUNCE_S: Final = 1.0  # servers start together, and one may change its list often
MOST_DELAYS: Final = 5  # by lists that come meanwhile, or by searches


class Definition(NamedTuple):
    """Of a tool, prompt or resource template."""

    entry: Json
    digest: bytes
    hidden: tuple[Flag, ...] | None  # None: nothing was removed from it yet


Named = tuple[PinnedKind, str]

Lists = Mapping[str, Mapping[Named, Definition]]
"""What each server listed last, by its id."""

# By server, kind and name: the digest, and the passages.
_Scanned = dict[tuple[str, Named], tuple[bytes, tuple[Flag, ...]]]

logger = logging.getLogger(__name__)


def defined(tool: KnownTool) -> Definition:
    return Definition(tool.tool, tool.digest, tool.hidden)


def held_back(held: Held) -> Definition:
    return Definition(held.entry, held.digests.whole, None)


class DefinitionWatch:
    """`run` it as a task, and tell it of each list with `listed`. `flags` has what was found last, by server."""

    def __init__(self, lists: Callable[[], Lists], trusted: Callable[[], Collection[str]]) -> None:
        """`trusted`: servers of which nothing is flagged, because they are part of Pointsman."""
        self._lists = [lists]
        self._trusted = trusted
        self.flags: Mapping[str, Sequence[Flag]] = {}
        self._scanned: _Scanned = {}
        self._seen: Mapping[str, Mapping[Named, bytes]] = {}
        self._logged: frozenset[tuple[str, bytes, Flag]] = frozenset()
        self._wake = asyncio.Event()
        self._searches = 0  # under way
        self._scanning = asyncio.Lock()

    def also(self, lists: Callable[[], Lists]) -> None:
        """Scan these, too."""
        self._lists.append(lists)

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
            lists = self._all()
            seen = {one: {name: found.digest for name, found in listed.items()} for one, listed in lists.items()}
            if seen == self._seen:
                return
            self.flags, self._scanned = await asyncio.to_thread(_scan_giving_way, lists, self._scanned, self._trusted())
            self._seen = seen
            self._log(seen)

    def _all(self) -> Lists:
        together: dict[str, dict[Named, Definition]] = {}
        for lists in self._lists:
            for server_id, listed in lists().items():
                together.setdefault(server_id, {}).update(listed)
        return together

    def _log(self, seen: Mapping[str, Mapping[Named, bytes]]) -> None:
        """Log each flag once for each definition."""
        digests = {(one, *named): digest for one, listed in seen.items() for named, digest in listed.items()}
        now = frozenset(
            (one, digests[one, flag.kind, flag.tool], flag) for one, flags in self.flags.items() for flag in flags
        )
        new = now - self._logged
        self._logged = now
        for server_id in sorted({server_id for server_id, _, _ in new}):
            flagged = {(flag.kind, flag.tool) for owner, _, flag in new if owner == server_id}
            names, count = sorted({name for _, name in flagged}), counted(flagged)
            logger.warning(
                "server %s has %s to read before you trust it: %s; `pointsman doctor` says why",
                *(server_id, count, quote_names(names)),
            )


def counted(flagged: Collection[tuple[str, str]]) -> str:
    """How many definitions, by kind and name; of tools alone it says so."""
    word = "tool" if all(kind == "tool" for kind, _ in flagged) else "definition"
    return f"1 {word}" if len(flagged) == 1 else f"{len(flagged)} {word}s"


def _scan_giving_way(
    lists: Lists, before: _Scanned, trusted: Collection[str]
) -> tuple[dict[str, Sequence[Flag]], _Scanned]:
    with giving_way():
        return _scan(lists, before, trusted)


def _scan(lists: Lists, before: _Scanned, trusted: Collection[str]) -> tuple[dict[str, Sequence[Flag]], _Scanned]:
    """Passages are scanned once for each definition, names of tools each time: they depend on the other servers."""
    scanned: _Scanned = {}
    flags: dict[str, list[Flag]] = {}
    for server_id, listed in lists.items():
        for named, found in listed.items() if server_id not in trusted else ():
            known = before.get((server_id, named))
            if known is None or known[0] != found.digest:
                known = (found.digest, _scan_one(named, found))
            scanned[server_id, named] = known
            flags.setdefault(server_id, []).extend(known[1])
    tools = {
        server_id: {name: found.entry for (kind, name), found in listed.items() if kind == "tool"}
        for server_id, listed in lists.items()
    }
    for server_id, others in scan_names(tools).items():
        if server_id not in trusted:
            flags[server_id].extend(others)
    return {server_id: found for server_id, found in flags.items() if found}, scanned


def _scan_one(named: Named, found: Definition) -> tuple[Flag, ...]:
    kind, name = named
    hidden = scan_hidden(name, found.entry) if found.hidden is None else found.hidden
    flags = hidden + scan_tool(name, found.entry)
    return flags if kind == "tool" else tuple(replace(flag, kind=kind) for flag in flags)
