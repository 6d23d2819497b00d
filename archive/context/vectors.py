"""Vectors of what a project has learned: made in the background, held as one matrix, compared exactly."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pointsman.archive.context.model import Wanted
from pointsman.archive.embedding.base import Embeddings
from pointsman.archive.store.context import ContextStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AT_ONCE = 128
NEAR = 0.2  # cosine from which an item that shares no word may still be meant


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    generation: int
    rows: tuple[int, ...]
    kinds: tuple[tuple[str, str | None], ...]  # type and module, to be filtered by
    vectors: NDArray[np.float32]


class ContextVectors:
    """Shared by threads."""

    def __init__(self, store: ContextStore, embeddings: Embeddings | None) -> None:
        self._store = store
        self.embeddings = embeddings
        self._lock = threading.Lock()
        self._matrix: Matrix | None = None

    @property
    def space(self) -> str:
        return str(self.embeddings.space) if self.embeddings else ""

    def make_missing(self, ended: threading.Event) -> None:
        """Embed what has no vector in our space, batch by batch, until there is none or the archive ends.

        Raises:
            EmbeddingFailed: the provider does not answer; what was made until then is kept.
            StoreError
        """
        if self.embeddings is None:
            return
        while not ended.is_set():
            batch = self._store.without_vector(self.space, AT_ONCE)
            if not batch:
                return
            vectors = self.embeddings.embed([text for _, text in batch]).astype("<f2")
            made = [(row, vector.tobytes()) for (row, _), vector in zip(batch, vectors, strict=True)]
            self._store.put_vectors(self.space, made)

    def nearest(self, query: NDArray[np.float32], wanted: Wanted, most: int) -> dict[int, float]:
        """Rows that fit and are near, with their cosine."""
        import numpy as np

        matrix = self._present()
        if not matrix.rows:
            return {}
        cosines = matrix.vectors @ query
        fits = np.fromiter((wanted.fits(*kind) for kind in matrix.kinds), dtype=bool, count=len(matrix.rows))
        cosines[~fits] = -1
        best = np.argsort(-cosines, kind="stable")[:most]
        return {matrix.rows[place]: float(cosines[place]) for place in best if cosines[place] >= NEAR}

    def _present(self) -> Matrix:
        generation = self._store.generation()
        with self._lock:
            if self._matrix is None or self._matrix.generation != generation:
                self._matrix = self._loaded(generation)
            return self._matrix

    def _loaded(self, generation: int) -> Matrix:
        import numpy as np

        known = self._store.vectors(self.space)
        joined = b"".join(one.vector for one in known)
        vectors = (
            np.frombuffer(joined, dtype="<f2").astype(np.float32).reshape(len(known), -1)
            if known
            else np.zeros((0, 1), np.float32)
        )
        return Matrix(
            generation, tuple(one.row for one in known), tuple((one.type, one.module) for one in known), vectors
        )
