"""One kind of list over all servers: asked of all at once, each under its own clock, and kept while true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

from pointsman.catalog.kinds import ListKind
from pointsman.catalog.listing import Clock, Item, KnownList, Patience, Recognise, Silent, Snapshot
from pointsman.catalog.model import ToolSource
from pointsman.catalog.notices import Gap

Usable = Callable[[], tuple[str, ...]]
"""The servers that a caller may use at this moment, in the order of the configuration."""


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
        gaps: dict[str, Gap] = {}
        lists: dict[str, KnownList[Item]] = {}
        for server_id in usable():
            source = self._sources.get(server_id)
            if source is None or source.status.state != "running":
                gaps[server_id] = "starting" if source is None or source.status.state == "starting" else "failed"
            else:
                lists[server_id] = self.list_of(source)
        answers = await self.answers(lists.values(), max_age_s)
        # Rights are asked after the wait: they may have changed meanwhile.
        still_usable = frozenset(usable())
        parts: dict[str, Snapshot[Item]] = {}
        for server_id, answer in zip(lists, answers, strict=True):
            if isinstance(answer, Silent):
                gaps[server_id] = answer.kind
            elif server_id in still_usable:
                parts[server_id] = answer
                if answer.cut:
                    gaps[server_id] = "cut"
                elif answer.unreadable:
                    gaps[server_id] = "unreadable"
        told = {server_id: gap for server_id, gap in gaps.items() if server_id in still_usable}
        missing = any(gap != "unreadable" for gap in told.values())
        return Collected(parts, told, 0.0 if missing else self._ttl_s(parts.values()))

    async def answers(self, lists: Iterable[KnownList[Item]], max_age_s: float) -> list[Snapshot[Item] | Silent]:
        """What each list holds. Cancelling this leaves the fetches to the others that wait for them."""
        answers = [listed.known(max_age_s) or listed.fetch() for listed in lists]
        fetches = [answer for answer in answers if isinstance(answer, asyncio.Task)]
        if fetches:
            await asyncio.wait(fetches)
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


def _result(fetch: asyncio.Task[Snapshot[Item] | Silent]) -> Snapshot[Item] | Silent:
    if fetch.cancelled():  # its server was taken out of the configuration while we waited
        return Silent("failed", "it was taken out of the configuration")
    return fetch.result()
