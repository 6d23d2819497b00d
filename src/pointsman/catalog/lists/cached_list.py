"""Caches one kind of list of one server.

A list is fetched once for all requests that need it at the same time (single-flight), and kept until it is too old or
the server starts a new generation (a new connection, a `list_changed`). A failed list
is retried in the background with exponential backoff; until then requests do not wait for it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from pointsman.catalog.definitions import encode_entry, quote_names
from pointsman.catalog.lists.pages import MalformedListError, walk
from pointsman.catalog.pins import Admission, NoPins
from pointsman.core.errors import NOT_RUN, TRY_LATER, CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.kinds import ListKind
from pointsman.core.model import Json, ToolSource
from pointsman.core.rounds import own_round

logger = logging.getLogger(__name__)

MAX_ROUNDS = 3  # of a fetch during which the server sends `list_changed`
BUILT_AT_ONCE = 100  # items, which takes 1 to 2 ms
MAX_DOUBLINGS = 30  # of the retry delay

Item = TypeVar("Item")
Clock = Callable[[], float]  # monotonic seconds
BuildItems = Callable[[ToolSource, dict[str, Json], dict[str, Item]], dict[str, Item]]
"""Builds the items from a list's entries; also receives the previous items, to reuse those that are unchanged."""

OnList = Callable[[str, dict[str, Item]], None]
"""Called with the server's id and its list, each time that it gave one."""


class Snapshot(Struct, Generic[Item], frozen=True, eq=False):
    """A server's list as it was at one moment."""

    items: dict[str, Item]
    cut: bool  # the server has more entries than we take
    valid_until: float | None  # according to the server; None: it sent no time to live
    unreadable: tuple[str, ...] = ()  # names with invisible characters, left out
    changed: tuple[str, ...] = ()  # names of entries that were changed and wait for approval
    unapproved: tuple[str, ...] = ()  # names of others that wait


class ListFailure(Struct, frozen=True):
    """Why there is no list."""

    kind: Literal["timeout", "failed", "starting", "sign-in"]
    reason: str
    advice: str = TRY_LATER


class ListWaits(Struct, frozen=True):
    """The backoff after a failed list, and how long an overview waits for lists that were never fetched."""

    first_s: float = 1.0
    longest_s: float = 30.0
    overview_s: float = 0.25


class CachedList(Generic[Item]):
    """One kind of list of one server."""

    def __init__(
        self,
        source: ToolSource,
        kind: ListKind,
        build_items: BuildItems[Item],
        clock: Clock,
        waits: ListWaits,
        on_list: OnList[Item] = lambda server_id, items: None,
        admission: Admission = NoPins(),  # noqa: B008 - has no state
    ) -> None:
        self.source = source
        self._admission = admission
        self._admitted_version = 0  # of the admission, when it decided on the snapshot
        self._on_list = on_list
        self.kind = kind
        self._build_items = build_items
        self._clock = clock
        self._waits = waits
        self._snapshot: Snapshot[Item] | None = None
        self._built_for: str | None = None  # the display name of the server, which the items carry
        self._generation = -1  # of the snapshot
        self._fetched_at = 0.0
        self._ttl_s: float | None = None
        self._digest: bytes | None = None  # of the entries that the snapshot was built from
        self._failure: ListFailure | None = None
        self._failure_generation = -1
        self._failures = 0
        self._fetch: asyncio.Task[Snapshot[Item] | ListFailure] | None = None
        self.fetch_began = 0.0  # the last one, on the loop's clock
        self._retry: asyncio.TimerHandle | None = None
        self._cancelled = False

    def cached(self, max_age_s: float, *, exact_ttl: bool = False) -> Snapshot[Item] | ListFailure | None:
        """The cached list or failure; None: it has to be fetched. Never waits.

        `exact_ttl` honours a time to live of 0, for an item that the list does not have.
        """
        generation = self.source.generation_of(self.kind.family)
        if self._failure is not None and self._failure_generation == generation:
            return self._failure
        ttl_s = self._ttl_s
        if ttl_s == 0 and not exact_ttl and self.source.announces_changes(self.kind.family):
            ttl_s = None  # servers send 0 by default, which means nothing if they announce changes
        lifetime_s = max_age_s if ttl_s is None else min(ttl_s, max_age_s)
        current = self._generation == generation and self._clock() - self._fetched_at < lifetime_s
        return self._snapshot if current and self._is_admitted and self._built_for == self.source.name else None

    def recent(self, max_age_s: float) -> Snapshot[Item] | None:
        """A list whose items can be used without fetching it again.

        Ignores `ttlMs`: servers send 0 by default, and each call would cost two requests. If the item disappeared
        without a `list_changed`, its server rejects the call.
        """
        source = self.source
        current = self._generation == source.generation_of(self.kind.family)
        if not current or self._admitted_version != self._admission.version(source.id):
            return None
        return self._snapshot if self._clock() - self._fetched_at < max_age_s else None

    def cached_item(self, key: str, max_age_s: float) -> Item | None:
        """An item of the `recent` list."""
        recent = self.recent(max_age_s)
        return recent.items.get(key) if recent is not None else None

    def last_item(self, key: str) -> Item | None:
        """An item of this connection's last list, however old, for a server that is too busy to list."""
        return self.cached_item(key, math.inf)

    def last_list(self) -> Snapshot[Item] | None:
        """The last list that this server gave with its present configuration, however old."""
        return self._snapshot if self.source.is_current(self._generation) and self._is_admitted else None

    def list_before_restart(self) -> Snapshot[Item] | None:
        """The last list, while its server is restarting."""
        return self._snapshot if self.source.keeps_list_of(self._generation) and self._is_admitted else None

    @property
    def _is_admitted(self) -> bool:
        """Whether all that the snapshot has may still be offered."""
        return self._admitted_version == self._admission.version(self.source.id)

    @property
    def has_answered(self) -> bool:
        """Whether this connection has given its list, or has failed to."""
        generation = self.source.generation_of(self.kind.family)
        listed = generation == self._generation and self._is_admitted
        return listed or (self._failure is not None and generation == self._failure_generation)

    def fetch(self) -> asyncio.Task[Snapshot[Item] | ListFailure]:
        """The fetch under way, or a new one. Wait for it with `asyncio.wait`: others may be waiting, too."""
        if self._fetch is None:
            self.fetch_began = asyncio.get_running_loop().time()
            self._fetch = asyncio.create_task(self._run(), name=f"{self.kind.words} of {self.source.id}")
        return self._fetch

    def cancel(self) -> asyncio.Task[Snapshot[Item] | ListFailure] | None:
        """Cancel the background work; return the fetch that was under way."""
        self._cancelled = True
        self._cancel_retry()
        if self._fetch is not None:
            self._fetch.cancel()
        return self._fetch

    async def _run(self) -> Snapshot[Item] | ListFailure:
        try:
            rounds = 0
            while True:
                rounds += 1
                generation = self.source.generation_of(self.kind.family)
                answer = await self._fetch_once()
                if isinstance(answer, Snapshot):
                    return answer
                # Otherwise the failure is that of a connection which is used no longer.
                if rounds == MAX_ROUNDS or not self._replaced_since(generation):
                    return self._fail(generation, *answer)
        finally:
            self._fetch = None

    def _replaced_since(self, generation: int) -> bool:
        running = self.source.status.state == "running"
        return running and self.source.generation_of(self.kind.family) != generation

    async def _fetch_once(self) -> Snapshot[Item] | tuple[ListFailure, str]:
        """The list; or why there is none, and the detail for the log."""
        limit_s = self.source.list_timeout_s
        failed = ListFailure("failed", f"it gave no list of its {self.kind.words}")
        try:
            async with asyncio.timeout(limit_s):
                snapshot = await self._fetch_pages()
        except (TimeoutError, CallTimeoutError):
            timeout = ListFailure("timeout", f"{failed.reason} within {limit_s:g} s")
            return timeout, f"timed out after {limit_s:g} s"
        except ServerUnavailableError as error:
            if self.source.status.sign_in:
                return ListFailure("sign-in", self.source.status.reason, NOT_RUN), ""
            return failed, f"failed: {error.reason!r}"  # quoted: it may be the server's text
        except (DownstreamError, MalformedListError) as error:
            return failed, f"failed: {str(error)!r}"
        except Exception:  # a surprise of one server must not cost the answers of the others
            logger.exception("server %s: %s could not be read", self.source.id, self.kind.method)
            return failed, "could not be read"
        self._reset_backoff()
        self._on_list(self.source.id, snapshot.items)
        return snapshot

    async def _fetch_pages(self) -> Snapshot[Item]:
        for _ in range(MAX_ROUNDS):
            generation = self.source.generation_of(self.kind.family)
            asked_at = self._clock()
            name = self.source.name
            walked = await walk(lambda cursor: self.source.list_page(self.kind.method, cursor), self.kind)
            items, changed, unapproved = await self._items_of(walked.items)
            valid_until = None if walked.ttl_s is None else asked_at + walked.ttl_s
            self._log_omissions(walked.unreadable, walked.skipped, walked.cut)
            # Kept even if it is outdated by now: the next fetch reuses its unchanged items.
            self._built_for = name
            self._snapshot = Snapshot(items, walked.cut, valid_until, walked.unreadable, changed, unapproved)
            if self.source.generation_of(self.kind.family) == generation:
                self._generation, self._fetched_at, self._ttl_s = generation, asked_at, walked.ttl_s
                break
            self._generation = -1
        assert self._snapshot is not None
        return self._snapshot

    def _log_omissions(self, unreadable: tuple[str, ...], skipped: int, cut: bool) -> None:
        server_id, words = self.source.id, self.kind.words
        if unreadable and (self._snapshot is None or self._snapshot.unreadable != unreadable):
            names = quote_names(unreadable)
            logger.warning(
                "server %s: skipped %d %s with invisible characters in their names: %s",
                *(server_id, len(unreadable), words, names),
            )
        if skipped or cut:
            logger.warning(
                "server %s: skipped %d invalid or duplicate %s%s",
                *(server_id, skipped, words, "; the list is longer than the limit" if cut else ""),
            )

    async def _items_of(self, entries: dict[str, Json]) -> tuple[dict[str, Item], tuple[str, ...], tuple[str, ...]]:
        """Build the items that are admitted, and name the others; reuse all if the list is the same to the byte."""
        encoded = encode_entry({"name": self.source.name, "entries": [*entries.values()]})
        digest = sha256(encoded).digest() if encoded is not None else None
        last, version = self._snapshot, self._admission.version(self.source.id)
        if digest is not None and digest == self._digest and last is not None and self._is_admitted:
            return last.items, last.changed, last.unapproved
        admitted = await self._admission.admit(self.source, self.kind, entries)
        before = last.items if last is not None else {}
        items: dict[str, Item] = {}
        for block in _blocks(admitted.entries):
            await own_round()  # other calls go on meanwhile, whatever number of lists arrive at once
            items |= self._build_items(self.source, block, before)
        self._digest, self._admitted_version = digest, version
        return items, admitted.changed, admitted.others

    def _fail(self, generation: int, failure: ListFailure, detail: str) -> ListFailure:
        self._failure, self._failure_generation = failure, generation
        if self._failures == 0 and failure.kind != "sign-in":  # that is logged once, for the server
            logger.warning("server %s skipped: %s %s", self.source.id, self.kind.method, detail)
        self._cancel_retry()
        if not self._cancelled:
            delay_s = min(self._waits.first_s * 2**self._failures, self._waits.longest_s)
            self._failures = min(self._failures + 1, MAX_DOUBLINGS)
            self._retry = asyncio.get_running_loop().call_later(delay_s, self._fetch_again)
        return failure

    def _reset_backoff(self) -> None:
        if self._failures:
            logger.info("server %s is back: %s succeeded", self.source.id, self.kind.method)
        self._failures = 0
        self._failure = None
        self._cancel_retry()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _fetch_again(self) -> None:
        if self.source.status.state == "running":  # otherwise its next connection is a new generation
            self.fetch()


def _blocks(entries: dict[str, Json]) -> Iterator[dict[str, Json]]:
    rest = iter(entries.items())
    while block := dict(islice(rest, BUILT_AT_ONCE)):
        yield block
