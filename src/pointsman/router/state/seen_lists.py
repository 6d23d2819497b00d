"""The digests of what each server listed last, approved or not. They are computed once for each definition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final

from pointsman.catalog.definitions import encode_entry
from pointsman.catalog.pins import Digests, PinnedKind, digests_of
from pointsman.core.model import Json
from pointsman.core.rounds import own_round
from pointsman.router.state.pin_store import Key

_AT_ONCE: Final = 20  # definitions, which take 2 ms


class SeenLists:
    """By server and kind."""

    def __init__(self) -> None:
        self._lists: dict[Key, dict[str, tuple[bytes, Digests]]] = {}  # the digest of the JSON first

    async def note(self, key: Key, entries: Mapping[str, Json]) -> dict[str, Digests]:
        """Return the digests of a list; those of definitions whose JSON is that of the last list are reused."""
        before, seen, computed = self._lists.get(key, {}), dict[str, tuple[bytes, Digests]](), 0
        for name, entry in entries.items():
            encoded = encode_entry(entry)
            if encoded is None:
                continue
            raw = sha256(encoded).digest()
            known = before.get(name)
            if known is not None and known[0] == raw:
                seen[name] = known
                continue
            if computed % _AT_ONCE == 0:
                await own_round()
            computed += 1
            digests = digests_of(entry)
            if digests is not None:
                seen[name] = (raw, digests)
        self._lists[key] = seen
        return {name: digests for name, (_, digests) in seen.items()}

    def names(self, key: Key) -> Collection[str] | None:
        """The names in the last list; None: it was not read since the start."""
        return self._lists.get(key)

    def of(self, server_id: str) -> dict[PinnedKind, dict[str, Digests]]:
        """The last lists of a server."""
        return {
            kind: {name: digests for name, (_, digests) in seen.items()}
            for (owner, kind), seen in self._lists.items()
            if owner == server_id
        }

    def keep_only(self, server_ids: Collection[str]) -> None:
        self._lists = {key: seen for key, seen in self._lists.items() if key[0] in server_ids}
