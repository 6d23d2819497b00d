"""All indexes of an archive by name. `default` always exists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.archive.indexes.memory import Budget, MemoryIndex
from pointsman.archive.model.indexes import Backend, Index, IndexFullError, StoredIndexes, Tokenizer
from pointsman.archive.store.errors import StoreUnusableError

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """`documents` and `bytes` limit all indexes in memory together; `indexes` limits each backend."""

    indexes: int = 100
    documents: int = 10_000
    bytes: int = 268_435_456


def no_store() -> StoredIndexes:
    raise StoreUnusableError("This archive has no store. Set SEARCH_DB_PATH, or `db` in the server's entry, to a file.")


class Indexes:
    """Thread-safe. `kept` opens the store at its first use. All callers share one namespace.

    `shared`: archives in several processes use the store; then every index is in it, because the next call may be
    answered by another process.

    Raises:
        StoreError: from all methods, except for indexes in memory.
    """

    def __init__(
        self, limits: IndexLimits | None = None, kept: Callable[[], StoredIndexes] = no_store, *, shared: bool = False
    ) -> None:
        self._limits = limits or IndexLimits()
        self._kept = kept
        self._shared = shared
        self._budget = Budget(self._limits.documents, self._limits.bytes)
        self._lock = threading.Lock()
        self._memory: dict[str, Index] = {} if shared else {DEFAULT: MemoryIndex(Tokenizer(), self._budget)}

    def create(self, name: str, backend: Backend, tokenizer: Tokenizer) -> bool:
        """Returns False if the name is taken. Raises IndexFullError."""
        with self._lock:
            if self.find(name) is not None:
                return False
            if backend == "sqlite" or self._shared:
                return self._kept().create(name, tokenizer, self._limits.indexes)
            if len(self._memory) >= self._limits.indexes:
                raise IndexFullError(
                    f"There are {len(self._memory)} indexes in memory, which is the limit. Use one of them, use the "
                    "backend `sqlite`, or raise the limit in POINTSMAN_ARCHIVE_INDEX_LIMITS."
                )
            self._memory[name] = MemoryIndex(tokenizer, self._budget)
            return True

    def find(self, name: str) -> Index | None:
        found = self._memory.get(name)
        if found is not None or self._kept is no_store:
            return found
        kept = self._kept()
        found = kept.find(name)
        if found is None and self._shared and name == DEFAULT:
            kept.create(DEFAULT, Tokenizer(), self._limits.indexes + 1)
            found = kept.find(name)
        return found

    def names(self) -> list[str]:
        kept = [] if self._kept is no_store else self._kept().names()
        return sorted({*self._memory, *kept, *([DEFAULT] if self._shared else [])})
