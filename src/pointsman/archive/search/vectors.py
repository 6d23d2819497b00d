"""Vectors in memory, compared exactly: a matrix, and the index that keeps one for each collection of the store."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pointsman.archive.store.base import Scope, Space, VectorChanges, VectorCursor, VectorStore
from pointsman.providers.embeddings import load_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 4_096  # rows added at a time: a matrix grows without being copied
_EXCLUDED = -2  # below any cosine


@dataclass(frozen=True, slots=True)
class VectorFilter:
    """Which vectors to compare: within a scope, only those in `only` (None: all), except those in `never`."""

    scope: Scope = field(default_factory=Scope)
    only: frozenset[int] | None = None
    never: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Near:
    number: int
    cosine: float


class Matrix:
    """Vectors by number. Not thread-safe. Rows of dropped vectors are reused."""

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self._dimension = dimension
        self._blocks: list[NDArray[np.float32]] = []
        self.numbers = np.zeros(0, dtype=np.int64)  # 0: the row is free
        self._documents = np.zeros(0, dtype=np.int64)
        self._free: list[int] = []

    def put(self, number: int, vector: bytes, document: int = 0) -> int:
        """Add a vector (float16, little-endian); its row."""
        import numpy as np

        if not self._free:
            self._grow()
        row = self._free.pop()
        self._blocks[row // BLOCK][row % BLOCK] = np.frombuffer(vector, dtype="<f2")
        self.numbers[row] = number
        self._documents[row] = document
        return row

    def drop(self, row: int) -> None:
        self.numbers[row] = 0
        self._free.append(row)

    def row(self, row: int) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._blocks[row // BLOCK][row % BLOCK]
        return vector

    def nearest(self, vector: NDArray[np.float32], limit: int, wanted: VectorFilter) -> list[Near]:
        """The highest cosines first; equal ones by number."""
        import numpy as np

        if not self._blocks:
            return []
        cosines = np.concatenate([block @ vector for block in self._blocks])
        cosines[self.numbers == 0] = _EXCLUDED
        if wanted.scope.documents is not None:
            cosines[~np.isin(self._documents, _array(wanted.scope.documents))] = _EXCLUDED
        if wanted.only is not None:
            cosines[~np.isin(self.numbers, _array(wanted.only))] = _EXCLUDED
        if wanted.never:
            cosines[np.isin(self.numbers, _array(wanted.never))] = _EXCLUDED
        best = np.argpartition(-cosines, limit - 1)[:limit] if limit < len(cosines) else np.arange(len(cosines))
        near = [Near(int(self.numbers[row]), float(cosines[row])) for row in best if cosines[row] > _EXCLUDED]
        return _sorted(near)

    def _grow(self) -> None:
        import numpy as np

        size = len(self.numbers)
        self._blocks.append(np.zeros((BLOCK, self._dimension), dtype=np.float32))
        self.numbers = np.concatenate([self.numbers, np.zeros(BLOCK, dtype=np.int64)])
        self._documents = np.concatenate([self._documents, np.zeros(BLOCK, dtype=np.int64)])
        self._free = list(range(size + BLOCK - 1, size - 1, -1))


class VectorIndex:
    """The vectors of all passages, a matrix for each collection; follows what any process writes. Thread-safe."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cursor: VectorCursor | None = None
        self._space: Space | None = None
        self._matrices: dict[int, Matrix] = {}
        self._rows: dict[int, tuple[Matrix, int]] = {}

    def refresh(self) -> Space | None:
        """Apply what changed in the store since the last refresh; returns the space in use.

        Raises:
            StoreError: the store cannot be read.
        """
        load_numpy()
        with self._lock:
            more = True
            while more:
                changes = self._store.changes(self._cursor)
                self._apply(changes)
                more = changes.more
            return self._space

    def nearest(self, vector: NDArray[np.float32], limit: int, wanted: VectorFilter) -> list[Near]:
        """The highest cosines first."""
        collections = wanted.scope.collections
        with self._lock:
            near = [
                each
                for collection, matrix in self._matrices.items()
                if collections is None or collection in collections
                for each in matrix.nearest(vector, limit, wanted)
            ]
        return _sorted(near)[:limit]

    def cosines(self, vector: NDArray[np.float32], numbers: Iterable[int]) -> dict[int, float]:
        """Of the passages that have a vector."""
        with self._lock:
            rows = {number: self._rows[number] for number in numbers if number in self._rows}
            return {number: float(matrix.row(row) @ vector) for number, (matrix, row) in rows.items()}

    def centroid(self, numbers: Sequence[int]) -> NDArray[np.float32] | None:
        """The mean direction of these passages; None if they have no vectors."""
        import numpy as np

        from pointsman.providers.embeddings import unit

        with self._lock:
            rows = [self._rows[number] for number in numbers if number in self._rows]
            if not rows:
                return None
            total = np.stack([matrix.row(row) for matrix, row in rows]).sum(axis=0, keepdims=True)
        direction: NDArray[np.float32] = unit(total)[0]
        return direction if direction.any() else None

    def _apply(self, changes: VectorChanges) -> None:
        if changes.reset:
            self._matrices.clear()
            self._rows.clear()
        self._space = changes.space
        for number in changes.removed:
            located = self._rows.pop(number, None)
            if located is not None:
                matrix, row = located
                matrix.drop(row)
        for stored in changes.added:
            matrix = self._matrix_of(stored.collection)
            self._rows[stored.number] = matrix, matrix.put(stored.number, stored.vector, stored.document)
        self._cursor = changes.cursor

    def _matrix_of(self, collection: int) -> Matrix:
        matrix = self._matrices.get(collection)
        if matrix is None:
            assert self._space is not None
            matrix = self._matrices[collection] = Matrix(self._space.dimension)
        return matrix


def _sorted(near: list[Near]) -> list[Near]:
    return sorted(near, key=lambda each: (-each.cosine, each.number))


def _array(numbers: frozenset[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))
