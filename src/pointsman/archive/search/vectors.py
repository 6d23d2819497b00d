"""Vectors in memory: a matrix, and the index that keeps one for each collection of the store."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pointsman.archive.store.base import Near, Space, VectorChanges, VectorCursor, VectorFilter, VectorStore
from pointsman.providers.embeddings import load_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 4_096  # rows added at a time: a matrix grows without being copied
EXACT_UP_TO = 16_384  # vectors: as many are compared in full
LIKELY = 4_096  # vectors of a larger matrix that are compared in full
SPARE = 16  # times the limit, if that is more


class Matrix:
    """Vectors by number. Not thread-safe. Rows of dropped vectors are reused.

    Comparing many vectors reads hundreds of megabytes, so that a large matrix first compares the signs of the numbers,
    a bit each, and then the vectors that differ from the query in the fewest.
    """

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self._dimension = dimension
        self._blocks: list[NDArray[np.float32]] = []
        self._signs: list[NDArray[np.uint64]] = []  # by 64 numbers, then by row
        self.numbers = np.zeros(0, dtype=np.int64)  # 0: the row is free
        self._documents = np.zeros(0, dtype=np.int64)
        self._free: list[int] = []

    def put(self, number: int, vector: bytes, document: int = 0) -> int:
        """Add a vector (float16, little-endian); its row."""
        import numpy as np

        if not self._free:
            self._grow()
        row = self._free.pop()
        stored = np.frombuffer(vector, dtype="<f2")
        self._blocks[row // BLOCK][row % BLOCK] = stored
        self._signs[row // BLOCK][:, row % BLOCK] = _signs(stored)
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

        rows = np.flatnonzero(self._passing(wanted))
        if len(rows) > max(EXACT_UP_TO, limit):
            rows = self._likely(vector, rows, max(LIKELY, SPARE * limit))
        cosines = self._cosines(vector, rows)
        if limit < len(rows):
            best = np.argpartition(-cosines, limit - 1)[:limit]
            rows, cosines = rows[best], cosines[best]
        return _sorted([Near(*each) for each in zip(self.numbers[rows].tolist(), cosines.tolist(), strict=True)])

    def _passing(self, wanted: VectorFilter) -> NDArray[np.bool_]:
        import numpy as np

        passing = self.numbers > 0
        if wanted.scope.documents is not None:
            passing &= np.isin(self._documents, _array(wanted.scope.documents))
        if wanted.only is not None:
            passing &= np.isin(self.numbers, _array(wanted.only))
        if wanted.never:
            passing &= ~np.isin(self.numbers, _array(wanted.never))
        return passing

    def _likely(self, vector: NDArray[np.float32], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Those of the rows, at least `count`, whose signs differ least from the vector's."""
        import numpy as np

        signs = _signs(vector)
        differing = np.concatenate(
            [
                sum((np.bitwise_count(row ^ sign) for row, sign in zip(block, signs, strict=True)), np.uint16(0))
                for block in self._signs
            ]
        )[rows]
        counts = np.cumsum(np.bincount(differing, minlength=1))
        return rows[differing <= np.searchsorted(counts, min(count, len(rows)))]

    def _cosines(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        import numpy as np

        if not len(rows):
            return np.zeros(0, np.float32)
        ends = np.searchsorted(rows, np.arange(1, len(self._blocks) + 1) * BLOCK)
        parts = []
        for number, (first, end) in enumerate(pairwise([0, *ends.tolist()])):
            block = self._blocks[number]
            parts.append((block if end - first == BLOCK else block[rows[first:end] - number * BLOCK]) @ vector)
        return np.concatenate(parts)

    def _grow(self) -> None:
        import numpy as np

        size = len(self.numbers)
        self._blocks.append(np.zeros((BLOCK, self._dimension), dtype=np.float32))
        self._signs.append(np.zeros((-(-self._dimension // 64), BLOCK), dtype=np.uint64))
        self.numbers = np.concatenate([self.numbers, np.zeros(BLOCK, dtype=np.int64)])
        self._documents = np.concatenate([self._documents, np.zeros(BLOCK, dtype=np.int64)])
        self._free = list(range(size + BLOCK - 1, size - 1, -1))


class VectorIndex:
    """Fits `VectorSearch`: a matrix for each collection, which follows what any process writes. Thread-safe."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cursor: VectorCursor | None = None
        self._space: Space | None = None
        self._matrices: dict[int, Matrix] = {}
        self._rows: dict[int, tuple[Matrix, int]] = {}

    def refresh(self) -> Space | None:
        load_numpy()
        with self._lock:
            more = True
            while more:
                changes = self._store.changes(self._cursor)
                self._apply(changes)
                more = changes.more
            return self._space

    def nearest(self, vector: NDArray[np.float32], limit: int, wanted: VectorFilter) -> list[Near]:
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
        with self._lock:
            rows = {number: self._rows[number] for number in numbers if number in self._rows}
            return {number: float(matrix.row(row) @ vector) for number, (matrix, row) in rows.items()}

    def centroid(self, numbers: Sequence[int]) -> NDArray[np.float32] | None:
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


def _signs(vector: NDArray[Any]) -> NDArray[np.uint64]:
    """A bit for each number, in words of 64."""
    import numpy as np

    bits = np.packbits(vector > 0)
    return np.concatenate([bits, np.zeros(-len(bits) % 8, np.uint8)]).view(np.uint64)


def _array(numbers: frozenset[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))
