"""One list of one server, kept for as long as it is known to be true."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, Literal, TypeVar

import msgspec

from pointsman.catalog.arguments import ArgumentCheck
from pointsman.catalog.definitions import listed_names, shown_tool
from pointsman.catalog.pages import MalformedListError, walk
from pointsman.core.errors import CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.kinds import ListKind
from pointsman.core.model import Json, ToolKey, ToolSource
from pointsman.providers.base import ToolDocument

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Clock = Callable[[], float]  # monotonic seconds
Recognise = Callable[[ToolSource, dict[str, Json], dict[str, Item]], dict[str, Item]]
"""Makes items of a list's entries; gets those of the list before, too."""

MAX_DEPTH = 200  # of a definition; one near the encoder's own limit would fail inside an answer, with all others in it
MAX_ROUNDS = 3  # of a fetch whose server says `list_changed` while it is asked


@dataclass(frozen=True, slots=True, eq=False)
class KnownTool:
    """One definition of a tool. The object stays the same for as long as the server's definition does."""

    server_id: str
    tool_name: str
    tool: Json  # as the server sent it, without invisible text
    digest: bytes  # of what the server sent
    document: ToolDocument
    check_arguments: ArgumentCheck


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(Generic[Item]):
    """A server's list as it was at one moment."""

    items: dict[str, Item]
    cut: bool  # the server has more than we take
    true_until: float | None  # as the server says; None: it does not
    unreadable: tuple[str, ...] = ()  # names with invisible characters, left out


@dataclass(frozen=True, slots=True)
class Silent:
    """Why there is no list."""

    kind: Literal["timeout", "failed"]
    reason: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How soon a server that gave no list is asked again in the background, and how long an overview waits."""

    first_s: float = 1.0
    longest_s: float = 30.0
    overview_s: float = 0.25  # how long an overview waits for servers that were never heard


class KnownList(Generic[Item]):
    """One kind of list of one server: fetched once for all that ask at the same time, each fetch under one clock.

    A server that gave no list is known-bad: nobody waits for it again, while a background fetch goes on trying.
    A new generation (a new connection, a `list_changed`) is a new chance.
    """

    def __init__(
        self, source: ToolSource, kind: ListKind, recognise: Recognise[Item], clock: Clock, patience: Patience
    ) -> None:
        self.source = source
        self.kind = kind
        self._recognise = recognise
        self._clock = clock
        self._patience = patience
        self._snapshot: Snapshot[Item] | None = None
        self._generation = -1  # of the snapshot
        self._fetched_at = 0.0
        self._ttl_s: float | None = None
        self._digest: bytes | None = None  # of what the snapshot was made from
        self._silent: Silent | None = None
        self._silent_generation = -1
        self._failures = 0
        self._fetch: asyncio.Task[Snapshot[Item] | Silent] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._cancelled = False

    def known(self, max_age_s: float, *, to_the_letter: bool = False) -> Snapshot[Item] | Silent | None:
        """What is known without asking; None: it has to be fetched. Never waits.

        `to_the_letter` takes a time to live of 0 as it was said, for an item that the list does not have.
        """
        generation = self.source.generation_of(self.kind.family)
        if self._silent is not None and self._silent_generation == generation:
            return self._silent
        ttl_s = self._ttl_s
        if ttl_s == 0 and not to_the_letter and self.source.hears_changes(self.kind.family):
            ttl_s = None  # servers send 0 by default: it says nothing where a change would be heard
        return (
            self._snapshot if self._holds(generation, max_age_s if ttl_s is None else min(ttl_s, max_age_s)) else None
        )

    def known_item(self, key: str, max_age_s: float) -> Item | None:
        """An item that can be used without asking for the list again.

        `ttlMs` does not count here: servers send 0 by default, and each call would cost two. If the item went
        without a `list_changed`, its server refuses the call.
        """
        if not self._holds(self.source.generation_of(self.kind.family), max_age_s):
            return None
        assert self._snapshot is not None
        return self._snapshot.items.get(key)

    def last_item(self, key: str) -> Item | None:
        """An item of this connection's last list, however old, for a server that is too busy to give its list."""
        return self.known_item(key, math.inf)

    def had(self, key: str) -> bool:
        """Whether it was in the last list, of whichever connection."""
        return self._snapshot is not None and key in self._snapshot.items

    def last_list(self) -> Snapshot[Item] | None:
        """The last list that this server gave, however old, for what need not be exact."""
        return self._snapshot

    @property
    def heard_from(self) -> bool:
        """Whether this connection has given its list, or has failed to."""
        generation = self.source.generation_of(self.kind.family)
        return generation == self._generation or (self._silent is not None and generation == self._silent_generation)

    def fetch(self) -> asyncio.Task[Snapshot[Item] | Silent]:
        """The fetch under way, or a new one. Wait for it with `asyncio.wait`: others may be waiting too."""
        if self._fetch is None:
            self._fetch = asyncio.create_task(self._run(), name=f"{self.kind.words} of {self.source.id}")
        return self._fetch

    def cancel(self) -> asyncio.Task[Snapshot[Item] | Silent] | None:
        """End what goes on in the background; returns a fetch that was under way."""
        self._cancelled = True
        self._cancel_retry()
        if self._fetch is not None:
            self._fetch.cancel()
        return self._fetch

    def _holds(self, generation: int, lifetime_s: float) -> bool:
        return self._generation == generation and self._clock() - self._fetched_at < lifetime_s

    async def _run(self) -> Snapshot[Item] | Silent:
        generation = self.source.generation_of(self.kind.family)
        limit_s = self.source.list_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                snapshot = await self._collect()
        except (TimeoutError, CallTimeoutError):
            return self._fail(generation, Silent("timeout", f"{self._no_list} within {limit_s:g} s"))
        except ServerUnavailableError as error:
            return self._fail(generation, Silent("failed", self._no_list), error.reason)
        except (DownstreamError, MalformedListError) as error:
            return self._fail(generation, Silent("failed", self._no_list), str(error))
        except Exception:  # one server's surprise must not cost the others' answer
            logger.exception("server %s: its list of %s could not be read", self.source.id, self.kind.words)
            return self._fail(generation, Silent("failed", self._no_list))
        finally:
            self._fetch = None
        self._recovered()
        return snapshot

    @property
    def _no_list(self) -> str:
        return f"it gave no list of its {self.kind.words}"

    async def _page(self, cursor: str | None) -> Json:
        return await self.source.list_page(self.kind.method, cursor)

    async def _collect(self) -> Snapshot[Item]:
        for _ in range(MAX_ROUNDS):
            generation = self.source.generation_of(self.kind.family)
            asked_at = self._clock()
            walked = await walk(self._page, self.kind)
            items = self._items_of(walked.items)
            true_until = None if walked.ttl_s is None else asked_at + walked.ttl_s
            snapshot = Snapshot(items, walked.cut, true_until, walked.unreadable)
            self._log_unreadable(walked.unreadable)
            if walked.skipped or walked.cut:
                logger.warning(
                    "server %s: %d entries of its %s left out", self.source.id, walked.skipped, self.kind.words
                )
            self._snapshot = snapshot  # also kept when it is not true any more: its definitions are recognised again
            if self.source.generation_of(self.kind.family) == generation:
                self._generation, self._fetched_at, self._ttl_s = generation, asked_at, walked.ttl_s
                break
            self._generation = -1
        assert self._snapshot is not None
        return self._snapshot

    def _log_unreadable(self, names: tuple[str, ...]) -> None:
        if names and (self._snapshot is None or self._snapshot.unreadable != names):
            logger.warning(
                "server %s: %d %s left out, because their names carry invisible characters: %s",
                *(self.source.id, len(names), self.kind.words, listed_names(names)),
            )

    def _items_of(self, entries: dict[str, Json]) -> dict[str, Item]:
        """The items of the list before, where it is the same to the byte."""
        encoded = encoded_entry({"name": self.source.name, "entries": [*entries.values()]})
        digest = sha256(encoded).digest() if encoded is not None else None
        if digest is not None and digest == self._digest and self._snapshot is not None:
            return self._snapshot.items
        self._digest = digest
        return self._recognise(self.source, entries, self._snapshot.items if self._snapshot is not None else {})

    def _fail(self, generation: int, silent: Silent, detail: str = "") -> Silent:
        self._silent, self._silent_generation = silent, generation
        if self._failures == 0:
            why = f": {detail!r}" if detail else ""  # quoted: it may be a server's own words
            logger.warning("server %s is left out: %s%s", self.source.id, silent.reason, why)
        self._cancel_retry()
        if not self._cancelled:
            delay_s = min(self._patience.first_s * 2**self._failures, self._patience.longest_s)
            self._failures = min(self._failures + 1, 30)
            self._retry = asyncio.get_running_loop().call_later(delay_s, self._try_again)
        return silent

    def _recovered(self) -> None:
        if self._failures:
            logger.info("server %s is back in the catalog with its %s", self.source.id, self.kind.words)
        self._failures = 0
        self._silent = None
        self._cancel_retry()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _try_again(self) -> None:
        if self.source.status.state == "running":  # otherwise its next connection is a new generation
            self.fetch()


def tools_of(source: ToolSource, entries: dict[str, Json], before: dict[str, KnownTool]) -> dict[str, KnownTool]:
    """The tools as objects: an unchanged definition keeps the object that it had."""
    known: dict[str, KnownTool] = {}
    for name, tool in entries.items():
        encoded = encoded_entry(tool)
        if encoded is None:
            continue
        digest = sha256(encoded).digest()
        old = before.get(name)
        if old is not None and old.digest == digest and old.document.server_name == source.name:
            known[name] = old
        elif not _deeper_than(tool, MAX_DEPTH):
            known[name] = _known_tool(source, name, shown_tool(tool, encoded), digest)
    return known


def encoded_entry(entry: Json) -> bytes | None:
    """None for one that could not be sent on (lone surrogates, too deep)."""
    try:
        return msgspec.json.encode(entry)
    except (ValueError, RecursionError):
        return None


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        containers = [value for value in level if isinstance(value, (dict, list))]
        level = [part for value in containers for part in (value.values() if isinstance(value, dict) else value)]
        if not level:
            return False
    return True


def _known_tool(source: ToolSource, name: str, tool: Json, digest: bytes) -> KnownTool:
    key = str(ToolKey(source.id, name))
    schema = tool.get("inputSchema", {})
    description = tool.get("description")
    document = ToolDocument(
        tool_key=key,
        tool_name=name,
        server_name=source.name,
        description=description if isinstance(description, str) else "",
        input_schema=schema,
    )
    return KnownTool(source.id, name, tool, digest, document, ArgumentCheck(key, schema))
