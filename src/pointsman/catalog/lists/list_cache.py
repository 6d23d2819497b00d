"""Collects the lists of all servers: one `ListCache` for each kind of list, one `CachedList` in it for each server.

A request asks all servers at once under one deadline, and a server without a list costs only its own part. It waits
briefly for servers that are being started for the first time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal

from msgspec import Struct

from pointsman.catalog.lists.cached_list import (
    BuildItems,
    CachedList,
    Clock,
    Item,
    ListFailure,
    ListWaits,
    OnList,
    Snapshot,
)
from pointsman.catalog.pins import Admission, NoPins
from pointsman.core.errors import NOT_RUN
from pointsman.core.kinds import ListKind
from pointsman.core.model import ToolSource

Gap = Literal["starting", "failed", "timeout", "restarting", "cut", "unreadable", "sign-in"]
"""Why a server's list is missing, incomplete or from before a restart."""

UsableServers = Callable[[], tuple[str, ...]]
"""The servers that a caller may use at this moment, in the order of the configuration."""


Pending = Snapshot[Item] | ListFailure | asyncio.Task[Snapshot[Item] | ListFailure]
"""A cached list, or the fetch under way."""


class Collected(Struct, Generic[Item], frozen=True):
    """The lists of all usable servers."""

    parts: dict[str, Snapshot[Item]]  # by server, in the order of the configuration
    gaps: dict[str, Gap]  # servers whose list is missing, incomplete or from before a restart
    ttl_s: float  # how long all of it is valid; 0 if a server gives no time to live, is missing or is restarting


class ListCache(Generic[Item]):
    """One kind of list of all servers. `sources` is a live view of the servers by id; its owner may change it."""

    def __init__(
        self,
        kind: ListKind,
        build_items: BuildItems[Item],
        sources: Mapping[str, ToolSource],
        clock: Clock,
        waits: ListWaits,
        on_list: OnList[Item] = lambda server_id, items: None,
        admission: Admission = NoPins(),  # noqa: B008 - has no state
    ) -> None:
        self.kind = kind
        self._admission = admission
        self._build_items = build_items
        self._sources = sources
        self._clock = clock
        self._waits = waits
        self._on_list = on_list
        self._lists: dict[str, CachedList[Item]] = {}
        self._cancelled: set[asyncio.Task[Snapshot[Item] | ListFailure]] = set()

    async def collect(
        self, usable: UsableServers, max_age_s: float, first_list_s: float, *, last_lists: bool = False
    ) -> Collected[Item]:
        """Fetch from all usable servers at once what is not cached.

        Servers that are being started for the first time have `first_list_s` for their start and their list. With
        `last_lists` those that are restarting are included with their last list.
        """
        sources = {server_id: self._sources.get(server_id) for server_id in usable()}
        answers = await self._answers({each.id: each for each in sources.values() if each}, max_age_s, first_list_s)
        still_usable = frozenset(usable())  # rights may have changed during the wait
        parts: dict[str, Snapshot[Item]] = {}
        gaps: dict[str, Gap] = {}
        for server_id, source in sources.items():
            if server_id not in still_usable:
                continue
            answer = answers.get(server_id) or _why_missing(source)
            last = self._list_before_restart(source) if last_lists and isinstance(answer, ListFailure) else None
            if last is not None:
                parts[server_id], gaps[server_id] = last, "restarting"
            elif isinstance(answer, ListFailure):
                gaps[server_id] = answer.kind
            else:
                parts[server_id] = answer
                if answer.cut or answer.unreadable:
                    gaps[server_id] = "cut" if answer.cut else "unreadable"
        missing = any(gap != "unreadable" for gap in gaps.values())
        return Collected(parts, gaps, 0.0 if missing else self._ttl_s(parts.values()))

    async def _answers(
        self, sources: Mapping[str, ToolSource], max_age_s: float, first_list_s: float
    ) -> dict[str, Snapshot[Item] | ListFailure]:
        """The lists of all servers that are running, and of those whose first start is over in time."""
        running = [source for source in sources.values() if source.status.state == "running"]
        starting = [source for source in sources.values() if source.status.state == "starting"]
        pending = [listed.cached(max_age_s) or listed.fetch() for listed in map(self.list_of, running)]
        if not starting:
            return _by_id(running, await _results_of(pending, _list_deadline(running)))
        firsts = [asyncio.create_task(self._first_list(source, max_age_s)) for source in starting]
        first_lists = _results_of(firsts, asyncio.get_running_loop().time() + first_list_s, "starting")
        try:
            results, first_results = await asyncio.gather(_results_of(pending, _list_deadline(running)), first_lists)
        finally:
            for first in firsts:
                first.cancel()  # not the fetch that it waits for
        return _by_id(running, results) | _by_id(starting, first_results)

    async def _first_list(self, source: ToolSource, max_age_s: float) -> Snapshot[Item] | ListFailure:
        await source.first_start()
        if source.status.state != "running":
            return _why_missing(source)
        return await self.fetch_for_item(self.list_of(source), max_age_s)

    def _list_before_restart(self, source: ToolSource | None) -> Snapshot[Item] | None:
        listed = self._lists.get(source.id) if source is not None else None
        return listed.list_before_restart() if listed is not None and listed.source is source else None

    async def fetch_for_item(self, listed: CachedList[Item], max_age_s: float) -> Snapshot[Item] | ListFailure:
        """The list, fetched anew if the cached one may be too old to prove that an item is missing."""
        [answer] = await _results_of([listed.cached(max_age_s, exact_ttl=True) or listed.fetch()], None)
        return answer

    async def fetch_now(self, listed: CachedList[Item]) -> Snapshot[Item] | ListFailure:
        """The list, or the failure, of a fetch that ends from now on, whatever is cached."""
        [answer] = await _results_of([listed.fetch()], None)
        return answer

    def list_of(self, source: ToolSource) -> CachedList[Item]:
        listed = self._lists.get(source.id)
        if listed is not None and listed.source is source:
            return listed
        self._evict(source.id)  # a reload replaced the server, and the new one counts its generations from 0
        parts = (self._build_items, self._clock, self._waits, self._on_list, self._admission)
        listed = CachedList(source, self.kind, *parts)
        self._lists[source.id] = listed
        return listed

    async def wait_for_first_lists(self, server_ids: Iterable[str]) -> None:
        """Wait briefly for running servers whose list was never fetched: `overview_s` from the begin of a fetch."""
        sources = (self._sources.get(server_id) for server_id in server_ids)
        running = [source for source in sources if source is not None and source.status.state == "running"]
        missing = [listed for listed in map(self.list_of, running) if not listed.has_answered]
        fetches = [listed.fetch() for listed in missing]
        deadline = max((listed.fetch_began for listed in missing), default=0.0) + self._waits.overview_s
        if fetches:
            await asyncio.wait(fetches, timeout=_seconds_left(deadline))

    def last_list(self, server_id: str) -> Snapshot[Item] | None:
        """The last list that the server gave with its present configuration, however old."""
        listed = self._lists.get(server_id)
        return listed.last_list() if listed is not None and listed.source is self._sources.get(server_id) else None

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Evict the lists of all other servers."""
        for server_id in self._lists.keys() - set(server_ids):
            self._evict(server_id)

    async def close(self) -> None:
        """Cancel the background work and wait for its end."""
        self.keep_only(())
        while self._cancelled:
            await asyncio.wait(self._cancelled)

    def _evict(self, server_id: str) -> None:
        listed = self._lists.pop(server_id, None)
        fetch = listed.cancel() if listed is not None else None
        if fetch is not None:
            self._cancelled.add(fetch)
            fetch.add_done_callback(self._cancelled.discard)

    def _ttl_s(self, parts: Iterable[Snapshot[Item]]) -> float:
        now = self._clock()
        left = [0.0 if part.valid_until is None else max(0.0, part.valid_until - now) for part in parts]
        return min(left, default=0.0)


async def _results_of(
    pending: Iterable[Pending[Item]], deadline: float | None, overdue: Literal["timeout", "starting"] = "timeout"
) -> list[Snapshot[Item] | ListFailure]:
    """Wait for the fetches. Cancelling this does not cancel them: other requests may be waiting for them.

    A list that arrives after `deadline` (on the loop's clock) is missing here and cached for the next request.
    """
    lists = list(pending)
    fetches = [each for each in lists if isinstance(each, asyncio.Task)]
    if fetches:
        await asyncio.wait(fetches, timeout=None if deadline is None else _seconds_left(deadline))
    return [_result_of(each, overdue) if isinstance(each, asyncio.Task) else each for each in lists]


def _result_of(
    fetch: asyncio.Task[Snapshot[Item] | ListFailure], overdue: Literal["timeout", "starting"]
) -> Snapshot[Item] | ListFailure:
    if not fetch.done():
        return ListFailure(overdue, "it gave no list in time")
    if fetch.cancelled():  # a reload removed its server during the wait
        return ListFailure("failed", "it was taken out of the configuration")
    return fetch.result()


def _why_missing(source: ToolSource | None) -> ListFailure:
    """For a server that is not running. One that the configuration has and the fleet has not yet is starting."""
    if source is None or source.status.state == "starting":
        return ListFailure("starting", "it is still starting")
    if source.status.sign_in:
        return ListFailure("sign-in", source.status.reason, NOT_RUN)
    return ListFailure("failed", "it is not running")


def _by_id(
    sources: Sequence[ToolSource], results: Sequence[Snapshot[Item] | ListFailure]
) -> dict[str, Snapshot[Item] | ListFailure]:
    return {source.id: result for source, result in zip(sources, results, strict=True)}


def _list_deadline(sources: Iterable[ToolSource]) -> float:
    return asyncio.get_running_loop().time() + max((source.list_timeout_s for source in sources), default=0.0)


def _seconds_left(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())
