"""Pins in use: decides for each list that a server gives what of it may be offered, and stores what is approved.

A list that is seen for the first time is stored before anything of it is offered. While the store is away, what this
process knows to be approved stays usable, and nothing else is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from pointsman.catalog.definitions import ChangedTools, quote_names
from pointsman.catalog.pins import (
    INSTRUCTIONS_NAME,
    MAX_PINS,
    PINNED,
    Admitted,
    Digests,
    Gone,
    Held,
    PinMode,
    PinnedKind,
    Reason,
    Table,
    diff_lines,
    held_names,
    is_unread,
    name_hash,
    pins_of,
)
from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.core.kinds import TOOLS, ListKind
from pointsman.core.model import Json, ToolSource, WallClock
from pointsman.core.rounds import giving_way
from pointsman.router.state.key_values import ABSENT, StateAwayError
from pointsman.router.state.pin_store import Key, Origin, PinStore, Stored, identity_of
from pointsman.router.state.seen_lists import SeenLists

LOOK_EVERY_S: Final = 2.0  # for approvals of other gateways, and whether the store is back
LOAD_S: Final = 1.0  # for the store, at the start
FIRST_LISTS_S: Final = 120.0  # from the first pins of a server: what it lists first later than that waits
STORE_S: Final = 4.0  # for the store, less than a list may take by default
ATTEMPTS: Final = 5  # to store pins that other gateways change at the same time
_KINDS: Final[tuple[PinnedKind, ...]] = ("tool", "prompt", "template", "instructions")

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Pins:
    """Fits `Admission`.

    `instructions` returns those of a server's handshake. `held_back` is called with a server's id and the tools whose
    change is held back, `approved` with the id of a server whose lists have to be read again, and `incomplete` with the
    id of a server of which some kinds of lists were never seen.
    """

    def __init__(
        self,
        store: PinStore,
        current: CurrentConfig,
        *,
        shared: bool = False,
        prepare: Callable[[], object] = lambda: None,
        instructions: Callable[[str], str] = lambda server_id: "",
        clock: WallClock = time.time,
    ) -> None:
        self._store = store
        self._current = current
        self._shared = shared  # other gateways use the store, too
        self._prepare = prepare  # once, before the store is read; raises StateAwayError
        self._instructions = instructions
        self._clock = clock
        self.held_back: ChangedTools = lambda server_id, names: None
        self.approved: Callable[[str], None] = lambda server_id: None
        self.incomplete: Callable[[str, Sequence[ListKind]], None] = lambda server_id, kinds: None
        self.problem = ""  # why the store cannot be used
        self._origin: Origin | None = None
        self._epoch = ABSENT
        self._tables: dict[Key, Stored] = {}
        self._identities: dict[str, str] = {}
        self._identities_due = False
        self._held: dict[Key, dict[str, Held]] = {}
        self._seen = SeenLists()
        self._versions: dict[str, int] = {}
        self._lock = asyncio.Lock()  # of the store

    # ------------------------------------------------------------------ Admission

    def version(self, server_id: str, /) -> int:
        return self._versions.get(server_id, 0)

    def pins(self, server_id: str, /) -> bool:
        return self.mode(server_id) != "off"

    def waits(self, server_id: str, /) -> bool:
        if not self.pins(server_id) or self._has_tables(server_id):
            return False
        return self.mode(server_id) == "locked" or self._is_lost(server_id)

    def reports_changes(self, server_id: str, /) -> bool:
        return self.mode(server_id) in ("first-use", "locked")

    def is_refused(self, server_id: str, kind: ListKind, name: str, /) -> bool:
        if kind not in PINNED or self.mode(server_id) != "locked":
            return False
        stored = self._tables.get((server_id, PINNED[kind]))
        return stored is None or name_hash(name) not in stored.table

    async def admit(self, source: ToolSource, kind: ListKind, entries: dict[str, Json], /) -> Admitted:
        server_id, mode = source.id, self.mode(source.id)
        if kind not in PINNED or mode == "off":
            return Admitted(entries)
        key = (server_id, PINNED[kind])
        digests = await self._seen.note(key, entries)
        held = await self._judge(key, mode, digests, entries)
        if kind is TOOLS:
            await self._judge_instructions(server_id, mode)
        self._note_missing(server_id, mode)
        if not held and len(digests) == len(entries):
            return Admitted(entries)
        changed = tuple(name for name, reason in held.items() if reason == "changed")
        others = tuple(name for name, reason in held.items() if reason != "changed")
        return Admitted({name: entries[name] for name in digests if name not in held}, changed, others)

    # ------------------------------------------------------------------ what the operator sees and does

    def mode(self, server_id: str) -> PinMode:
        server = self._current.config.servers.get(server_id)
        return server.pin_mode if server is not None else "locked"

    def held(self, server_id: str) -> list[Held]:
        """What waits for approval, by the last lists."""
        if not self.pins(server_id):
            return []
        return [one for kind in _KINDS for one in self._held.get((server_id, kind), {}).values()]

    def listed(self, server_id: str) -> dict[PinnedKind, dict[str, Digests]]:
        """All definitions of the last lists, approved or not."""
        return self._seen.of(server_id)

    def pinned(self, server_id: str) -> int:
        """How many definitions are approved, including those that the server no longer lists."""
        tables = (self._tables.get((server_id, kind)) for kind in _KINDS)
        return sum(len(stored.table) for stored in tables if stored is not None)

    @property
    def lost(self) -> list[str]:
        """The servers that wait because their pins were lost."""
        return [server_id for server_id in self._current.config.servers if self._is_lost(server_id)]

    async def diff(self, server_id: str, held: Held) -> list[str]:
        """What changed, line by line. Raises StateAwayError."""
        stored = self._tables.get((server_id, held.kind))
        pin = stored.table.get(name_hash(held.name)) if stored is not None else None

        def compute() -> list[str]:
            with giving_way():
                before = self._store.text((server_id, held.kind), pin) if pin is not None else None
                return diff_lines(before, held.entry)

        return await asyncio.to_thread(compute)

    async def stored(self, server_id: str) -> tuple[dict[PinnedKind, dict[str, Digests]], int]:
        """All approved definitions by name, and how many have no name. Raises StateAwayError."""
        tables: dict[PinnedKind, Table] = {
            kind: stored.table for (owner, kind), stored in self._tables.items() if owner == server_id
        }
        return await _in_thread(partial(self._store.named, server_id, tables))

    def gone_count(self, server_id: str) -> int:
        return sum(len(pins) for pins in self._gone(server_id).values())

    async def gone(self, server_id: str, most: int) -> list[Gone]:
        """The approved definitions that the last lists do not have, at most so many. Raises StateAwayError."""
        found: list[tuple[PinnedKind, Digests]] = []
        for kind, pins in self._gone(server_id).items():
            found.extend((kind, pin) for pin in islice(pins.values(), most - len(found)))

        def named() -> list[Gone]:
            return [Gone(kind, self._store.name((server_id, kind), pin), pin.whole.hex()) for kind, pin in found]

        return sorted(await _in_thread(named), key=lambda one: (one.kind, one.name))

    async def forget(self, server_id: str, chosen: Collection[tuple[str, str]]) -> int:
        """Drop pins of definitions that are not listed any more, by kind and digest; return how many.

        One that the server lists again later is new. Raises StateAwayError.
        """
        dropped = 0
        async with self._lock:
            await self._load()
            try:
                for kind, pins in self._gone(server_id).items():
                    names = {name for name, pin in pins.items() if (kind, pin.whole.hex()) in chosen}
                    if names:
                        await self._change((server_id, kind), partial(_without, names), {})
                        dropped += len(names)
                self._epoch = await asyncio.to_thread(self._store.announce)
            finally:
                self._decide_again(server_id)
        return dropped

    async def approve(self, server_id: str, chosen: Iterable[Held]) -> None:
        """Pin definitions as they are in `chosen`. Raises StateAwayError: some may be pinned."""
        by_kind: dict[PinnedKind, list[Held]] = {}
        for one in chosen:
            by_kind.setdefault(one.kind, []).append(one)
        if not by_kind and self.waits(server_id):
            by_kind["tool"] = []  # it has nothing to pin
        async with self._lock:
            await self._load()
            try:
                for kind, definitions in by_kind.items():
                    await self._pin((server_id, kind), definitions)
                await self._settle()
                self._epoch = await asyncio.to_thread(self._store.announce)
            finally:
                self._decide_again(server_id)

    async def load(self) -> None:
        """Read the store, so that no resource is offered before it is known who waits. Notes if it is away."""
        try:
            async with asyncio.timeout(LOAD_S), self._lock:
                await self._load()
        except StateAwayError as error:
            self._note_problem(error)
        except TimeoutError:
            pass  # the first list tries again, and has longer

    async def run(self, every_s: float = LOOK_EVERY_S) -> None:
        """Follow the approvals of other gateways, if the store is shared, and use it again when it is back."""
        while True:
            await asyncio.sleep(every_s)
            if self._origin is None and not self.problem:
                continue
            try:
                async with self._lock:
                    if self.problem or self._shared:
                        await self._look()
                    if self._identities_due:
                        await self._note_identities()
            except StateAwayError as error:
                self._note_problem(error)

    async def close(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._store.close)

    def reconfigured(self, before: GatewayConfig, after: GatewayConfig) -> None:
        """Decide again on servers whose `pin` has changed, and forget those that were removed."""
        self._identities_due = True
        for server_id, server in after.servers.items():
            was = before.servers.get(server_id)
            if was is not None and was.pin_mode != server.pin_mode:
                self._versions[server_id] = self.version(server_id) + 1
        self._held = {key: held for key, held in self._held.items() if key[0] in after.servers}
        self._seen.keep_only(after.servers)

    # ------------------------------------------------------------------ helpers

    async def _judge_instructions(self, server_id: str, mode: PinMode) -> None:
        """No client gets a server's instructions; the operator sees that they have changed."""
        text = self._instructions(server_id)
        entries: dict[str, Json] = {INSTRUCTIONS_NAME: {"description": text}} if text else {}
        key: Key = (server_id, "instructions")
        await self._judge(key, mode, await self._seen.note(key, entries), entries)

    async def _judge(
        self, key: Key, mode: PinMode, digests: Mapping[str, Digests], entries: Mapping[str, Json]
    ) -> dict[str, Reason]:
        """The names that are held back, and why."""
        stored = self._tables.get(key)
        reason: Reason = "not stored"
        if stored is None:
            try:
                async with asyncio.timeout(STORE_S), self._lock:
                    await self._load()
                    stored = await self._first_pins(key, mode, digests, entries)
                reason = "waiting" if self._is_lost(key[0]) else "new"
            except StateAwayError as error:
                self._note_problem(error)
            except TimeoutError:
                self._note_problem(StateAwayError(f"The state database has not answered within {STORE_S:g} s."))
        held: dict[str, Reason] = {name: reason for name in digests}  # noqa: C420 - `fromkeys` has another type
        if stored is not None:
            held = held_names(mode, stored.table, digests)
        self._note_held(key, held, digests, entries)
        return held

    def _note_held(
        self, key: Key, held: Mapping[str, Reason], digests: Mapping[str, Digests], entries: Mapping[str, Json]
    ) -> None:
        server_id, kind = key
        before = self._held.get(key, {})
        now = {name: Held(kind, name, reason, digests[name], entries[name]) for name, reason in held.items()}
        self._held[key] = now
        fresh = [name for name, one in now.items() if name not in before or before[name].digests != one.digests]
        if fresh:
            unread, approved = is_unread(now.values()), f"approved, see `pointsman pin diff {server_id}`"
            until = "it can be read what was approved" if unread else approved
            told = server_id, until, len(fresh), kind, quote_names(fresh)
            logger.warning("server %s: held back until %s: %d of kind %s: %s", *told)
        changed = [name for name in fresh if now[name].reason == "changed"]
        if changed and kind == "tool":
            self.held_back(server_id, changed)

    async def _load(self) -> None:
        """Read the store once. Raises StateAwayError, at once while it is known to be away."""
        if self.problem:
            raise StateAwayError(self.problem)
        if self._origin is None:
            await self._read()

    async def _read(self) -> None:
        servers = self._current.config.servers
        pinned = {server_id: server for server_id, server in servers.items() if self.pins(server_id)}

        def read() -> tuple[Origin, int, dict[Key, Stored], dict[str, str]]:
            self._prepare()
            epoch = self._store.epoch()  # first: an approval after it is seen the next time
            return self._store.origin(pinned), epoch, self._store.tables(), self._store.identities()

        first, before, self._identities_due = self._origin is None, self._tables, True
        self._origin, self._epoch, self._tables, self._identities = await asyncio.to_thread(read)
        if self.lost:
            logger.error("the pins were lost; servers wait for `pointsman pin approve`: %s", ", ".join(self.lost))
        changed = {key[0] for key in before.keys() | self._tables.keys() if before.get(key) != self._tables.get(key)}
        for server_id in () if first else changed:
            self._decide_again(server_id)

    async def _look(self) -> None:
        """Read the store again if it was away, or if another gateway has approved something."""
        if not self.problem:
            if await asyncio.to_thread(self._store.epoch) != self._epoch:
                await self._read()
            return
        await self._read()
        logger.warning("the pins can be used again")
        self.problem = ""
        for server_id in self._current.config.servers:
            self._decide_again(server_id)

    async def _first_pins(
        self, key: Key, mode: PinMode, digests: Mapping[str, Digests], entries: Mapping[str, Json]
    ) -> Stored | None:
        """Pin a list that has no pins yet, unless it has to wait. None: it has none."""
        server_id = key[0]
        if not self._has_tables(server_id):
            await self._inherit(server_id)
        if key in self._tables:
            return self._tables[key]
        assert self._origin is not None  # loaded
        if mode == "locked" or server_id in self._origin.waiting or self._is_lost(server_id):
            return None
        is_known = any(self._has_pins(server_id, kind) for kind in PINNED.values())
        if not is_known and not digests:
            return None  # a server that has listed nothing yet is not known: it may have to sign in first
        if is_known and digests and not await self._is_first_sight(server_id):
            return await self._read_again(key)  # another gateway may have pinned it
        if not is_known:
            await asyncio.to_thread(self._store.put_seen, server_id, self._clock())
        table = pins_of(digests)
        texts = {found.whole: entries[name] for name, found in digests.items()}
        version = await _in_thread(partial(self._store.put, key, table, ABSENT, texts))
        if version is None:
            return await self._read_again(key)
        self._tables[key] = stored = Stored(table, version)
        return stored

    async def _is_first_sight(self, server_id: str) -> bool:
        """Whether the first pins of a server are so recent that its other lists belong to them."""
        age_s = self._clock() - await asyncio.to_thread(self._store.seen_at, server_id)
        return -FIRST_LISTS_S < age_s < FIRST_LISTS_S

    def _note_missing(self, server_id: str, mode: PinMode) -> None:
        """Ask for the lists of a server that is known, and has no pins of some kinds."""
        if mode == "locked" or not any(self._has_pins(server_id, kind) for kind in PINNED.values()):
            return
        missing = [kind for kind, pinned in PINNED.items() if (server_id, pinned) not in self._tables]
        if missing and not self._is_lost(server_id):
            self.incomplete(server_id, missing)

    async def _inherit(self, server_id: str) -> None:
        """Give a new server the pins of one that was removed and had its command or URL."""
        server, origin = self._current.config.servers.get(server_id), self._origin
        if server is None or origin is None:
            return
        identity, servers = identity_of(server, origin.salt), self._current.config.servers

        def inherit() -> tuple[dict[str, str], dict[Key, Stored]]:
            identities = self._store.identities()
            gone = sorted(one for one, its in identities.items() if its == identity and one not in servers)
            if server_id not in identities and gone:
                self._store.inherit(server_id, gone[-1])
            if identities.get(server_id) != identity:
                self._store.put_identity(server_id, identity)
            return identities | {server_id: identity}, self._store.tables(server_id)

        self._identities, found = await asyncio.to_thread(inherit)
        self._tables |= found

    async def _note_identities(self) -> None:
        """Store the commands and URLs of pinned servers: if one is renamed later, its present one counts."""
        assert self._origin is not None  # loaded
        pinned = {key[0] for key in self._tables}
        servers = {one: server for one, server in self._current.config.servers.items() if one in pinned}
        identities = {server_id: identity_of(server, self._origin.salt) for server_id, server in servers.items()}
        for server_id, identity in identities.items():
            if self._identities.get(server_id) != identity:
                await asyncio.to_thread(self._store.put_identity, server_id, identity)
                self._identities[server_id] = identity
        self._identities_due = False

    def _gone(self, server_id: str) -> dict[PinnedKind, dict[bytes, Digests]]:
        """By kind and the hash of the name. A list that was not read since the start lacks nothing."""
        gone: dict[PinnedKind, dict[bytes, Digests]] = {}
        for kind in _KINDS:
            stored, seen = self._tables.get((server_id, kind)), self._seen.names((server_id, kind))
            if stored is not None and seen is not None:
                listed = set(map(name_hash, seen))
                gone[kind] = {name: pin for name, pin in stored.table.items() if name not in listed}
        return gone

    async def _pin(self, key: Key, definitions: Sequence[Held]) -> None:
        """Raises StateAwayError."""
        fresh = pins_of({one.name: one.digests for one in definitions})

        def change(table: Table) -> Table:
            table = {**table, **fresh}
            if len(table) > MAX_PINS:  # those that the server no longer lists are in the way
                listed = set(map(name_hash, self._seen.names(key) or ()))
                table = {name: pin for name, pin in table.items() if name in listed}
            return table

        await self._change(key, change, {one.digests.whole: one.entry for one in definitions})

    async def _change(self, key: Key, change: Callable[[Table], Table], texts: Mapping[bytes, Json]) -> None:
        """Raises StateAwayError."""
        for _ in range(ATTEMPTS):
            stored = self._tables.get(key) or Stored({}, ABSENT)
            table = change(stored.table)
            version = await _in_thread(partial(self._store.put, key, table, stored.version, texts))
            if version is not None:
                self._tables[key] = Stored(table, version)
                return
            self._tables.pop(key, None)
            await self._read_again(key)
        raise StateAwayError("Other gateways change the pins of this server at the same time. Try again.")

    async def _read_again(self, key: Key) -> Stored | None:
        self._tables |= await asyncio.to_thread(self._store.tables, key[0])
        return self._tables.get(key)

    def _is_lost(self, server_id: str) -> bool:
        """Whether a server waits because the pins were lost."""
        origin, server = self._origin, self._current.config.servers.get(server_id)
        if origin is None or server is None or not self.pins(server_id) or self._has_tables(server_id):
            return False
        return origin.holds_back(server_id, server, self._has_tables)

    async def _settle(self) -> None:
        """End the state after a loss if no enabled server waits any more. Raises StateAwayError."""
        servers = self._current.config.servers
        if self._origin is not None and self._origin.lost and not any(servers[one].enabled for one in self.lost):
            self._origin = await asyncio.to_thread(self._store.settle, self._origin)

    def _has_tables(self, server_id: str) -> bool:
        return any((server_id, kind) in self._tables for kind in _KINDS)

    def _has_pins(self, server_id: str, kind: PinnedKind) -> bool:
        stored = self._tables.get((server_id, kind))
        return stored is not None and bool(stored.table)

    def _decide_again(self, server_id: str) -> None:
        self._versions[server_id] = self.version(server_id) + 1
        self.approved(server_id)

    def _note_problem(self, error: StateAwayError) -> None:
        if not self.problem:
            logger.error("the pins cannot be used; nothing new is trusted: %s", error)
        self.problem = str(error)


def _without(names: AbstractSet[bytes], table: Table) -> Table:
    return {name: pin for name, pin in table.items() if name not in names}


async def _in_thread(work: Callable[[], T]) -> T:
    def giving() -> T:
        with giving_way():
            return work()

    return await asyncio.to_thread(giving)
