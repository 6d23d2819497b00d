"""Vectors of what a project has learned: made in the background, held as one matrix, compared exactly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pointsman.archive.embedding.base import MAX_CHARS, EmbeddingError, Embeddings
from pointsman.archive.model.context import ItemFilter
from pointsman.archive.store.context import ContextStore, ItemVector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AT_ONCE = 128
BATCH_DEADLINE_S = 120.0
QUERY_DEADLINE_S = 3.0  # a person waits
REST_S = 30.0  # a provider that did not answer is not waited for at every search
NEAR = 0.2  # cosine from which an item that shares no word may still be meant


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    known: tuple[str, int]  # the space, and the state of the store that it shows
    rows: tuple[int, ...]
    types: NDArray[np.object_]
    modules: NDArray[np.object_]  # in one case
    vectors: NDArray[np.float32]


class ContextVectors:
    """Shared by threads."""

    def __init__(
        self, store: ContextStore, embeddings: Embeddings | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock = clock
        self.embeddings = embeddings
        self._lock = threading.Lock()
        self._matrix: Matrix | None = None
        self._failure: tuple[float, str] | None = None  # until when to rest, and why

    def of_query(self, embeddings: Embeddings, query: str) -> NDArray[np.float32]:
        """Raises EmbeddingError."""
        if self._failure is not None and self._clock() < self._failure[0]:
            raise EmbeddingError(self._failure[1])
        try:
            vector: NDArray[np.float32] = embeddings.embed([query], deadline_s=QUERY_DEADLINE_S)[0]
        except EmbeddingError as error:
            self._failure = self._clock() + REST_S, str(error)
            raise
        self._failure = None
        return vector

    def make_missing(self, ended: threading.Event) -> None:
        """Embed what has no vector in our space, batch by batch, until there is none or the archive ends.

        Raises:
            EmbeddingError: the provider does not answer; what was made until then is kept.
            StoreError
        """
        if self.embeddings is None or not self._store.stats("").items:
            return  # and no model is loaded for nothing
        space = str(self.embeddings.space())
        while not ended.is_set():
            batch = self._store.without_vector(space, AT_ONCE)
            if not batch:
                return
            vectors = self.embeddings.embed([text[:MAX_CHARS] for _, text in batch], deadline_s=BATCH_DEADLINE_S)
            rows = vectors.astype("<f2")
            self._store.put_vectors(space, [(row, made.tobytes()) for (row, _), made in zip(batch, rows, strict=True)])

    def nearest(self, space: str, query: NDArray[np.float32], wanted: ItemFilter, most: int) -> dict[int, float]:
        """Rows that fit and are near, with their cosine."""
        import numpy as np

        matrix = self._present(space)
        if not matrix.rows:
            return {}
        cosines = matrix.vectors @ query
        if wanted.type is not None:
            cosines[matrix.types != wanted.type] = -1
        if wanted.module is not None:
            cosines[matrix.modules != wanted.module.casefold()] = -1
        best = np.argsort(-cosines, kind="stable")[:most]
        return {matrix.rows[place]: float(cosines[place]) for place in best if cosines[place] >= NEAR}

    def _present(self, space: str) -> Matrix:
        known = (space, self._store.generation())
        with self._lock:
            if self._matrix is None or self._matrix.known != known:
                self._matrix = _loaded(known, self._store.vectors(space))
            return self._matrix


def _loaded(known: tuple[str, int], vectors: Sequence[ItemVector]) -> Matrix:
    import numpy as np

    joined = np.frombuffer(b"".join(one.vector for one in vectors), dtype="<f2").astype(np.float32)
    return Matrix(
        known,
        tuple(one.row for one in vectors),
        np.array([one.type for one in vectors], dtype=object),
        np.array([(one.module or "").casefold() for one in vectors], dtype=object),
        joined.reshape(max(1, len(vectors)), -1),
    )
