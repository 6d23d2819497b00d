"""Vectors of what a project has learned: made in the background, compared in memory."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pointsman.archive.embedding.base import BATCH, MAX_CHARS, Embeddings, embed_batch
from pointsman.archive.model.context import ItemFilter
from pointsman.archive.search.circuit_breaker import CircuitBreaker
from pointsman.archive.search.vectors import Matrix
from pointsman.archive.store.base import StoredVector, VectorFilter
from pointsman.archive.store.context import ContextStore, ItemVector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUERY_DEADLINE_S = 3.0  # a person waits
MIN_COSINE = 0.2  # from here on an item that shares no word with the query may still be meant


class ContextVectors:
    """Thread-safe."""

    def __init__(
        self, store: ContextStore, embeddings: Embeddings | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.embeddings = embeddings
        self._store = store
        self._breaker = CircuitBreaker(clock)
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    def embed_query(self, embeddings: Embeddings, query: str) -> NDArray[np.float32]:
        """Raises EmbeddingError."""
        return self._breaker.run(lambda: embeddings.embed([query], deadline_s=QUERY_DEADLINE_S)[0])

    def embed_missing(self, ended: threading.Event) -> None:
        """Embed the items without a vector in our space, batch by batch, until none is left or the archive ends.

        Raises:
            EmbeddingError: the provider does not answer; earlier batches are kept.
            StoreError
        """
        if self.embeddings is None or not self._store.stats("").items:
            return  # don't load a model without need
        space = str(self.embeddings.space())
        while not ended.is_set():
            batch = self._store.without_vector(space, BATCH)
            if not batch:
                return
            vectors = embed_batch(self.embeddings, [text[:MAX_CHARS] for _, text in batch])
            self._store.put_vectors(space, [(row, vector) for (row, _), vector in zip(batch, vectors, strict=True)])

    def nearest(self, space: str, query: NDArray[np.float32], wanted: ItemFilter, limit: int) -> dict[int, float]:
        """Rows that pass the filter and are near, nearest first, with their cosine."""
        return self._load(space).nearest(query, wanted, limit)

    def _load(self, space: str) -> _Loaded:
        state = (space, self._store.generation())
        with self._lock:
            if self._loaded is None or self._loaded.state != state:
                self._loaded = _Loaded(state, self._store.vectors(space))
            return self._loaded


class _Loaded:
    """All vectors of one space at one generation of the store. Never changes after its creation."""

    def __init__(self, state: tuple[str, int], vectors: Sequence[ItemVector]) -> None:
        self.state = state
        self._matrix = Matrix(len(vectors[0].vector) // 2 if vectors else 0)
        self._by_type: defaultdict[str, set[int]] = defaultdict(set)
        self._by_module: defaultdict[str, set[int]] = defaultdict(set)
        self._matrix.put([StoredVector(each.row, 0, 0, each.vector) for each in vectors])
        for each in vectors:
            self._by_type[each.type].add(each.row)
            self._by_module[(each.module or "").casefold()].add(each.row)

    def nearest(self, query: NDArray[np.float32], wanted: ItemFilter, limit: int) -> dict[int, float]:
        near = self._matrix.nearest(query, limit, VectorFilter(only=self._rows(wanted)))
        return {each.number: each.cosine for each in near if each.cosine >= MIN_COSINE}

    def _rows(self, wanted: ItemFilter) -> frozenset[int] | None:
        """None: all."""
        passing = []
        if wanted.type is not None:
            passing.append(self._by_type.get(wanted.type, set()))
        if wanted.module is not None:
            passing.append(self._by_module.get(wanted.module.casefold(), set()))
        return frozenset(set.intersection(*passing)) if passing else None
