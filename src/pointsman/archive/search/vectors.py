"""Vectors in memory: a matrix, and the index that keeps one for each collection of the store."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pointsman.archive.store.base import (
    LargeVectorSearch,
    Near,
    Scope,
    Space,
    StoredVector,
    VectorChanges,
    VectorCursor,
    VectorFilter,
    VectorSearch,
    VectorStore,
)
from pointsman.providers.embeddings import load_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 4_096  # rows added at a time: a matrix grows without being copied
EXACT_UP_TO = 16_384  # vectors: as many are compared in full
LIKELY = 4_096  # vectors of a larger matrix that are compared in full
SPARE = 16  # times the limit, if that is more
_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1


class Matrix:
    """Vectors by number. Not thread-safe. Rows of dropped vectors are reused.

    Comparing many vectors reads hundreds of megabytes, so that a large matrix first compares the signs of the numbers,
    a bit each, and then the vectors that differ from the query in the fewest.
    """

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self._dimension = dimension
        self._blocks: list[NDArray[np.float32]] = []
        self._signs = np.zeros((-(-dimension // 64), 0), dtype=np.uint64)  # by 64 numbers, then by row; some spare ones
        self.numbers = np.zeros(0, dtype=np.int64)  # 0: the row is free
        self._documents = np.zeros(0, dtype=np.int64)
        self._free: list[int] = []
        self._used: NDArray[np.int64] | None = None  # the rows with a vector; None: they have changed

    def put(self, added: Sequence[StoredVector]) -> list[int]:
        """Add vectors; their rows."""
        import numpy as np

        if not added:
            return []
        while len(self._free) < len(added):
            self._grow()
        taken = [self._free.pop() for _ in added]
        rows = np.array(taken, dtype=np.int64)
        stored = np.frombuffer(b"".join([each.vector for each in added]), dtype="<f2").reshape(len(added), -1)
        for number in np.unique(rows // BLOCK).tolist():
            here = rows // BLOCK == number
            self._blocks[number][rows[here] % BLOCK] = stored[here]
        self._signs[:, rows] = _signs(stored).T
        self._used = None
        self.numbers[rows] = [each.number for each in added]
        self._documents[rows] = [each.document for each in added]
        return taken

    def drop(self, row: int) -> None:
        self._used = None
        self.numbers[row] = 0
        self._free.append(row)

    def row(self, row: int) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._blocks[row // BLOCK][row % BLOCK]
        return vector

    def nearest(self, vector: NDArray[np.float32], limit: int, wanted: VectorFilter) -> list[Near]:
        """The highest cosines first; equal ones by number."""
        import numpy as np

        rows = self._passing(wanted)
        if len(rows) > max(EXACT_UP_TO, limit):
            rows = self._likely(vector, rows, max(LIKELY, SPARE * limit))
        cosines = self._cosines(vector, rows)
        if limit < len(rows):
            best = np.argpartition(-cosines, limit - 1)[:limit]
            rows, cosines = rows[best], cosines[best]
        return _sorted([Near(*each) for each in zip(self.numbers[rows].tolist(), cosines.tolist(), strict=True)])

    def _passing(self, wanted: VectorFilter) -> NDArray[np.int64]:
        """The rows to compare, ascending."""
        import numpy as np

        if self._used is None:
            self._used = np.flatnonzero(self.numbers)
        if wanted == VectorFilter(Scope(wanted.scope.collections)):
            return self._used
        numbers = self.numbers[self._used]
        passing = np.ones(len(numbers), np.bool_)
        if wanted.scope.documents is not None:
            passing &= np.isin(self._documents[self._used], _array(wanted.scope.documents))
        if wanted.only is not None:
            passing &= np.isin(numbers, _array(wanted.only))
        if wanted.never:
            passing &= ~np.isin(numbers, _array(wanted.never))
        return self._used[passing]

    def _likely(self, vector: NDArray[np.float32], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Those of the rows, at least `count`, whose signs differ least from the vector's."""
        import numpy as np

        (signs,) = _signs(vector[np.newaxis])
        size = len(self.numbers)
        differing, bits = np.zeros(size, np.uint16), np.empty(size, np.uint8)
        different = np.empty(size, np.uint64)
        for row, sign in zip(self._signs[:, :size], signs, strict=True):
            np.bitwise_count(np.bitwise_xor(row, sign, out=different), out=bits)
            differing += bits
        if len(rows) < size:
            differing = differing[rows]
        counts = np.cumsum(np.bincount(differing, minlength=1))
        return rows[differing <= np.searchsorted(counts, min(count, len(rows)))]

    def _cosines(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        import numpy as np

        if not len(rows):
            return np.zeros(0, np.float32)
        ends = np.searchsorted(rows, np.arange(1, len(self._blocks) + 1) * BLOCK)
        cosines = np.empty(len(rows), np.float32)
        chosen = np.empty((BLOCK, self._dimension), np.float32)
        for number, (first, end) in enumerate(pairwise([0, *ends.tolist()])):
            block = self._blocks[number]
            if end - first < BLOCK:  # `clip` writes without a copy; no row is beyond
                block = block.take(rows[first:end] - number * BLOCK, 0, chosen[: end - first], "clip")
            np.dot(block, vector, out=cosines[first:end])
        return cosines

    def _grow(self) -> None:
        import numpy as np

        size = len(self.numbers)
        self._blocks.append(np.zeros((BLOCK, self._dimension), dtype=np.float32))
        if self._signs.shape[1] < size + BLOCK:
            self._signs = np.pad(self._signs, ((0, 0), (0, BLOCK + size // 2)))
        self.numbers = np.pad(self.numbers, (0, BLOCK))
        self._documents = np.pad(self._documents, (0, BLOCK))
        self._free = [*range(size + BLOCK - 1, size - 1, -1), *self._free]


class VectorIndex:
    """Fits `VectorSearch`: a matrix for each collection, which follows what any process writes. Thread-safe."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cursor: VectorCursor | None = None
        self._space: Space | None = None
        self._matrices: dict[int, Matrix] = {}
        self._rows: dict[int, int] = {}  # by passage: its collection and row as one number, which the GC need not visit

    def refresh(self) -> Space | None:
        load_numpy()
        with self._lock:
            more = True
            while more:
                changes = self._store.changes(self._cursor)
                more = self._apply(changes) and changes.more
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
            known = [number for number in numbers if number in self._rows]
            return {number: float(self._vector(number) @ vector) for number in known}

    def centroid(self, numbers: Sequence[int]) -> NDArray[np.float32] | None:
        import numpy as np

        from pointsman.providers.embeddings import unit

        with self._lock:
            rows = [self._vector(number) for number in numbers if number in self._rows]
            if not rows:
                return None
            total = np.stack(rows).sum(axis=0, keepdims=True)
        direction: NDArray[np.float32] = unit(total)[0]
        return direction if direction.any() else None

    def _apply(self, changes: VectorChanges) -> bool:
        """False: what is here is newer."""
        if self._newer_than(changes.cursor):
            return False
        if changes.reset:
            self._matrices.clear()
            self._rows.clear()
        self._space = changes.space
        for number in changes.removed:
            located = self._rows.pop(number, None)
            if located is not None:
                self._matrices[located >> _ROW_BITS].drop(located & _ROW)
        for collection, added in _by_collection(changes.added).items():
            matrix = self._matrix_of(collection)
            rows = zip(added, matrix.put(added), strict=True)
            self._rows.update({stored.number: collection << _ROW_BITS | row for stored, row in rows})
        self._cursor = changes.cursor
        return True

    def _vector(self, number: int) -> NDArray[np.float32]:
        located = self._rows[number]
        return self._matrices[located >> _ROW_BITS].row(located & _ROW)

    def _newer_than(self, cursor: VectorCursor | None) -> bool:
        """Whether the space has been replaced since: a view that began before still sees the former one."""
        own = self._cursor
        return own is not None and cursor is not None and own.store == cursor.store and own.space > cursor.space

    def _matrix_of(self, collection: int) -> Matrix:
        matrix = self._matrices.get(collection)
        if matrix is None:
            assert self._space is not None
            matrix = self._matrices[collection] = Matrix(self._space.dimension)
        return matrix


def _by_collection(vectors: Iterable[StoredVector]) -> dict[int, list[StoredVector]]:
    found: defaultdict[int, list[StoredVector]] = defaultdict(list)
    for each in vectors:
        found[each.collection].append(each)
    return found


class ChosenSearch:
    """Fits `VectorSearch`: in memory, or by the engine's own search as long as that needs to be. Thread-safe."""

    def __init__(self, store: VectorStore, large: LargeVectorSearch | None) -> None:
        self._store = store
        self._large = large
        self._memory = VectorIndex(store)
        self._chosen: VectorSearch = self._memory

    def refresh(self) -> Space | None:
        if self._large is not None and self._large.needed():
            self._chosen = self._large
            self._memory = VectorIndex(self._store)  # without the vectors that it held
        else:
            self._chosen = self._memory
        return self._chosen.refresh()

    def nearest(self, vector: NDArray[np.float32], limit: int, wanted: VectorFilter) -> list[Near]:
        return self._chosen.nearest(vector, limit, wanted)

    def cosines(self, vector: NDArray[np.float32], numbers: Iterable[int]) -> dict[int, float]:
        return self._chosen.cosines(vector, numbers)

    def centroid(self, numbers: Sequence[int]) -> NDArray[np.float32] | None:
        return self._chosen.centroid(numbers)


def _sorted(near: list[Near]) -> list[Near]:
    return sorted(near, key=lambda each: (-each.cosine, each.number))


def _signs(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    """A bit for each number, in words of 64; by vector."""
    import numpy as np

    bits = np.packbits(vectors > 0, axis=1)
    return np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)


def _array(numbers: frozenset[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))
