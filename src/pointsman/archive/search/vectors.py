"""The index of vectors: a matrix for each collection that follows the store, whoever writes to it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pointsman.archive.search.matrix import Matrix
from pointsman.archive.store.base import Scope, Space, VectorChanges, VectorCursor, VectorStore
from pointsman.providers.embeddings import load_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which passages count: within a scope, among `only` (None: any), none of `never`."""

    scope: Scope = field(default_factory=Scope)
    only: frozenset[int] | None = None
    never: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Near:
    number: int
    cosine: float


class VectorIndex:
    """Thread-safe."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cursor: VectorCursor | None = None
        self._space: Space | None = None
        self._matrices: dict[int, Matrix] = {}
        self._places: dict[int, tuple[Matrix, int]] = {}

    def refresh(self) -> Space | None:
        """Take in what the store has got and lost since the last time; the space in use.

        Raises:
            StoreError: it cannot be read.
        """
        load_numpy()
        with self._lock:
            more = True
            while more:
                changes = self._store.changes(self._cursor)
                self._apply(changes)
                more = changes.more
            return self._space

    def nearest(self, vector: NDArray[np.float32], limit: int, wanted: Wanted) -> list[Near]:
        """The likest first."""
        found: list[Near] = []
        with self._lock:
            for collection, matrix in self._matrices.items():
                if wanted.scope.collections is None or collection in wanted.scope.collections:
                    found += _nearest(matrix, vector, limit, wanted)
        found.sort(key=lambda near: (-near.cosine, near.number))
        return found[:limit]

    def cosines(self, vector: NDArray[np.float32], numbers: Iterable[int]) -> dict[int, float]:
        """Of those that have a vector."""
        with self._lock:
            rows = {number: self._places[number] for number in numbers if number in self._places}
            return {number: float(matrix.row(row) @ vector) for number, (matrix, row) in rows.items()}

    def centroid(self, numbers: Sequence[int]) -> NDArray[np.float32] | None:
        """The direction that passages have in common; None where they have no vectors."""
        import numpy as np

        from pointsman.providers.embeddings import unit

        with self._lock:
            rows = [self._places[number] for number in numbers if number in self._places]
            if not rows:
                return None
            middle = np.stack([matrix.row(row) for matrix, row in rows]).sum(axis=0, keepdims=True)
        directed: NDArray[np.float32] = unit(middle)[0]
        return directed if directed.any() else None

    def _apply(self, changes: VectorChanges) -> None:
        if changes.reset:
            self._matrices.clear()
            self._places.clear()
        self._space = changes.space
        for number in changes.removed:
            place = self._places.pop(number, None)
            if place is not None:
                place[0].drop(place[1])
        for stored in changes.added:
            matrix = self._matrices.get(stored.collection)
            if matrix is None:
                assert changes.space is not None
                matrix = self._matrices[stored.collection] = Matrix(changes.space.dimension)
            self._places[stored.number] = matrix, matrix.put(stored)
        self._cursor = changes.cursor


def _nearest(matrix: Matrix, vector: NDArray[np.float32], limit: int, wanted: Wanted) -> list[Near]:
    import numpy as np

    cosines = matrix.likeness(vector)
    if wanted.scope.documents is not None:
        cosines[~np.isin(matrix.documents, _array(wanted.scope.documents))] = -2
    if wanted.only is not None:
        cosines[~np.isin(matrix.numbers, _array(wanted.only))] = -2
    if wanted.never:
        cosines[np.isin(matrix.numbers, _array(wanted.never))] = -2
    best = np.argpartition(-cosines, limit - 1)[:limit] if limit < len(cosines) else np.arange(len(cosines))
    return [Near(int(matrix.numbers[row]), float(cosines[row])) for row in best if cosines[row] > -2]


def _array(numbers: frozenset[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))
