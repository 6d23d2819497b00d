"""One kind of list over all servers: asked of all at once, under one clock for the request, and kept while true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

from pointsman.catalog.listing import Clock, Item, KnownList, Patience, Recognise, Silent, Snapshot
from pointsman.catalog.notices import Gap
from pointsman.core.kinds import ListKind
from pointsman.core.model import ToolSource

Usable = Callable[[], tuple[str, ...]]
"""The servers that a caller may use at this moment, in the order of the configuration."""

Asked = Snapshot[Item] | Silent | asyncio.Task[Snapshot[Item] | Silent]
"""What is known of a list, or the fetch under way."""


@dataclass(frozen=True, slots=True)
class Collected(Generic[Item]):
    """What the usable servers list."""

    parts: dict[str, Snapshot[Item]]  # by server, in the order of the configuration
    gaps: dict[str, Gap]  # what was left out, and why
    ttl_s: float  # for how long all of it is said to be true; 0 where a part says nothing, or is missing


class Lists(Generic[Item]):
    """`sources` is a live view of the servers by id; whoever owns it may change it between requests."""

    def __init__(
        self,
        kind: ListKind,
        recognise: Recognise[Item],
        sources: Mapping[str, ToolSource],
        clock: Clock,
        patience: Patience,
    ) -> None:
        self.kind = kind
        self._recognise = recognise
        self._sources = sources
        self._clock = clock
        self._patience = patience
        self._lists: dict[str, KnownList[Item]] = {}
        self._cancelled: set[asyncio.Task[Snapshot[Item] | Silent]] = set()

    async def collect(self, usable: Usable, max_age_s: float) -> Collected[Item]:
        """Ask all usable servers at once for what is not known; one that is silent costs only its own part."""
        sources = {server_id: self._sources.get(server_id) for server_id in usable()}
        until = asyncio.get_running_loop().time() + _longest_list_s(sources.values())
        asked = self._ask(sources, {}, max_age_s)  # before the wait for servers that are starting
        if await self._first_starts(sources.values(), until):
            asked = self._ask(sources, asked, max_age_s)
        gaps: dict[str, Gap] = {
            server_id: "starting" if source is None or source.status.state == "starting" else "failed"
            for server_id, source in sources.items()
            if server_id not in asked
        }
        answers = await self._answered(asked.values(), until)
        # Rights are asked after the wait: they may have changed meanwhile.
        still_usable = frozenset(usable())
        parts: dict[str, Snapshot[Item]] = {}
        for server_id, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Silent):
                gaps[server_id] = answer.kind
            elif server_id in still_usable:
                parts[server_id] = answer
                if answer.cut:
                    gaps[server_id] = "cut"
                elif answer.unreadable:
                    gaps[server_id] = "unreadable"
        told: dict[str, Gap] = {server_id: gap for server_id, gap in gaps.items() if server_id in still_usable}
        missing = any(gap != "unreadable" for gap in told.values())
        return Collected(parts, told, 0.0 if missing else self._ttl_s(parts.values()))

    def _ask(
        self, sources: Mapping[str, ToolSource | None], asked: Mapping[str, Asked[Item]], max_age_s: float
    ) -> dict[str, Asked[Item]]:
        """All servers that run, in the order of `sources`; those in `asked` were asked already."""
        found: dict[str, Asked[Item]] = {}
        for server_id, source in sources.items():
            if server_id in asked:
                found[server_id] = asked[server_id]
            elif source is not None and source.status.state == "running":
                listed = self.list_of(source)
                found[server_id] = listed.known(max_age_s) or listed.fetch()
        return found

    async def _first_starts(self, sources: Iterable[ToolSource | None], until: float) -> bool:
        """Wait for servers that were never up and never failed, so that a first request finds those that come up.

        Returns whether there were any.
        """
        starting = [each for each in sources if each is not None and each.status.state == "starting"]
        if not starting:
            return False
        starts = [asyncio.create_task(each.first_start()) for each in starting]
        try:
            await asyncio.wait(starts, timeout=_left_s(until))
        finally:
            for start in starts:
                start.cancel()
        return True

    async def answer(self, listed: KnownList[Item], max_age_s: float) -> Snapshot[Item] | Silent:
        """What one list holds, for an item that it did not have so far."""
        [answer] = await self._answered([listed.known(max_age_s, to_the_letter=True) or listed.fetch()], None)
        return answer

    async def _answered(self, asked: Iterable[Asked[Item]], until: float | None) -> list[Snapshot[Item] | Silent]:
        """Cancelling this leaves the fetches to the others that wait for them.

        A list that has not come by `until` (on the loop's clock) is missing here, and known when it comes.
        """
        answers = list(asked)
        fetches = [answer for answer in answers if isinstance(answer, asyncio.Task)]
        if fetches:
            await asyncio.wait(fetches, timeout=None if until is None else _left_s(until))
        return [_result(answer) if isinstance(answer, asyncio.Task) else answer for answer in answers]

    def list_of(self, source: ToolSource) -> KnownList[Item]:
        listed = self._lists.get(source.id)
        if listed is not None and listed.source is source:
            return listed
        self._forget(source.id)  # a reload put another one in its place, which counts its generations anew
        listed = KnownList(source, self.kind, self._recognise, self._clock, self._patience)
        self._lists[source.id] = listed
        return listed

    async def hear(self, server_ids: Iterable[str]) -> None:
        """Wait a moment for those that run and were never heard."""
        sources = (self._sources.get(server_id) for server_id in server_ids)
        running = [source for source in sources if source is not None and source.status.state == "running"]
        unheard = [listed.fetch() for listed in map(self.list_of, running) if not listed.heard_from]
        if unheard:
            await asyncio.wait(unheard, timeout=self._patience.overview_s)

    def last_list(self, server_id: str) -> Snapshot[Item] | None:
        """The last list that the server gave, true or not by now."""
        listed = self._lists.get(server_id)
        return listed.last_list() if listed is not None else None

    def had(self, server_id: str, key: str) -> bool:
        """Whether it was in the last list that the server gave, true or not by now."""
        listed = self._lists.get(server_id)
        return listed is not None and listed.had(key)

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Other servers are no more."""
        for server_id in self._lists.keys() - set(server_ids):
            self._forget(server_id)

    async def close(self) -> None:
        """End what goes on in the background."""
        self.keep_only(())
        while self._cancelled:
            await asyncio.wait(self._cancelled)

    def _forget(self, server_id: str) -> None:
        listed = self._lists.pop(server_id, None)
        fetch = listed.cancel() if listed is not None else None
        if fetch is not None:
            self._cancelled.add(fetch)
            fetch.add_done_callback(self._cancelled.discard)

    def _ttl_s(self, parts: Iterable[Snapshot[Item]]) -> float:
        now = self._clock()
        left = [0.0 if part.true_until is None else max(0.0, part.true_until - now) for part in parts]
        return min(left, default=0.0)


def _longest_list_s(sources: Iterable[ToolSource | None]) -> float:
    return max((source.list_timeout_s for source in sources if source is not None), default=0.0)


def _left_s(until: float) -> float:
    return max(0.0, until - asyncio.get_running_loop().time())


def _result(fetch: asyncio.Task[Snapshot[Item] | Silent]) -> Snapshot[Item] | Silent:
    if not fetch.done():
        return Silent("timeout", "it gave no list in time")
    if fetch.cancelled():  # its server was taken out of the configuration while we waited
        return Silent("failed", "it was taken out of the configuration")
    return fetch.result()
