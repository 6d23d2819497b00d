"""The vectors of one collection in memory: compared with all of them, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.archive.store.base import StoredVector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 4_096  # rows that are added at a time: a matrix grows without being copied


class Matrix:
    """Not thread-safe. Rows of passages that went are used again."""

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self._dimension = dimension
        self._blocks: list[NDArray[np.float32]] = []
        self.numbers = np.zeros(0, dtype=np.int64)  # of the passages; 0: the row is free
        self.documents = np.zeros(0, dtype=np.int64)
        self._free: list[int] = []

    def put(self, stored: StoredVector) -> int:
        """Its row."""
        import numpy as np

        if not self._free:
            self._grow()
        row = self._free.pop()
        self._blocks[row // BLOCK][row % BLOCK] = np.frombuffer(stored.vector, dtype="<f2")
        self.numbers[row] = stored.number
        self.documents[row] = stored.document
        return row

    def drop(self, row: int) -> None:
        self.numbers[row] = 0
        self._free.append(row)

    def row(self, row: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._blocks[row // BLOCK][row % BLOCK]
        return found

    def likeness(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine for each row; -2 for free ones."""
        import numpy as np

        cosines = np.concatenate([block @ vector for block in self._blocks])
        cosines[self.numbers == 0] = -2
        return cosines

    def _grow(self) -> None:
        import numpy as np

        size = len(self.numbers)
        self._blocks.append(np.zeros((BLOCK, self._dimension), dtype=np.float32))
        self.numbers = np.concatenate([self.numbers, np.zeros(BLOCK, dtype=np.int64)])
        self.documents = np.concatenate([self.documents, np.zeros(BLOCK, dtype=np.int64)])
        self._free = list(range(size + BLOCK - 1, size - 1, -1))
