"""The context of an archive's projects as one part: searched by a tool, kept up to date by threads of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pointsman.archive.code.classification import module
from pointsman.archive.context.accesses import StoredAccesses
from pointsman.archive.context.search import ContextSearch, Found
from pointsman.archive.context.vectors import ContextVectors
from pointsman.archive.context.watcher import ContextWatcher
from pointsman.archive.embedding.base import Embeddings
from pointsman.archive.model.context import ItemFilter
from pointsman.archive.store.context import ContextStore


class ProjectContext:
    """Starts at once and ends with `close`."""

    def __init__(self, store: ContextStore, embeddings: Embeddings | None, roots: Mapping[str, Path]) -> None:
        vectors = ContextVectors(store, embeddings)
        self._keeper = ContextWatcher(store, vectors, roots)
        self._search = ContextSearch(store, vectors, _module_of, self._keeper.wake)
        self.accesses = StoredAccesses(store)
        self._keeper.start()

    def search(self, query: str, wanted: ItemFilter, limit: int) -> Found:
        """Raises NoContextError, NoVectorsYetError, QueryNotEmbeddedError, StoreError."""
        return self._search.search(query, wanted, limit)

    def close(self) -> None:
        self._keeper.close()
        self.accesses.close()


def _module_of(path: str) -> str | None:
    return module(path, "") or None
