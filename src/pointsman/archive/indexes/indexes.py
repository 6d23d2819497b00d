"""All indexes of an archive by name: `default` is always there, in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.archive.indexes.memory import MemoryIndex, Room
from pointsman.archive.model.indexes import Backend, Index, IndexFullError, StoredIndexes, Tokenizer
from pointsman.archive.store.errors import StoreUnusableError

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Documents and bytes are those of all indexes in memory; `indexes` holds for each backend."""

    indexes: int = 100
    documents: int = 10_000
    bytes: int = 268_435_456


def nothing_kept() -> StoredIndexes:
    raise StoreUnusableError(
        "This archive has no store. Name a file in SEARCH_DB_PATH, or in `db` of the server's entry."
    )


class Indexes:
    """Thread-safe. `kept` opens the store when it is needed first. Callers are not told apart: a name is one index.

    Raises:
        StoreError: from all of it but for indexes in memory.
    """

    def __init__(self, limits: IndexLimits | None = None, kept: Callable[[], StoredIndexes] = nothing_kept) -> None:
        self._limits = limits or IndexLimits()
        self._kept = kept
        self._room = Room(self._limits.documents, self._limits.bytes)
        self._guard = threading.Lock()
        self._memory: dict[str, Index] = {DEFAULT: MemoryIndex(Tokenizer(), self._room)}

    def create(self, name: str, backend: Backend, tokenizer: Tokenizer) -> bool:
        """False: the name is taken. Raises IndexFullError."""
        with self._guard:
            if self.find(name) is not None:
                return False
            if backend == "sqlite":
                return self._kept().create(name, tokenizer, self._limits.indexes)
            if len(self._memory) >= self._limits.indexes:
                raise IndexFullError(
                    f"There are {len(self._memory)} indexes in memory, which is the limit. Use one of them or the "
                    "backend `sqlite`, or raise the limit in POINTSMAN_ARCHIVE_INDEX_LIMITS."
                )
            self._memory[name] = MemoryIndex(tokenizer, self._room)
            return True

    def find(self, name: str) -> Index | None:
        found = self._memory.get(name)
        if found is not None or self._kept is nothing_kept:
            return found
        return self._kept().find(name)

    def names(self) -> list[str]:
        kept = [] if self._kept is nothing_kept else self._kept().names()
        return sorted({*self._memory, *kept})
