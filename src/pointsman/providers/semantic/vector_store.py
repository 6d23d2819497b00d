"""Keeps the vectors of tools on disk, by the hash of their text and model. The file holds no text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.providers.disk_cache import DiskCache
from pointsman.providers.embeddings import stored_vectors
from pointsman.providers.semantic.encoder import DIMENSIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = "search-vectors.db"
MAX_VECTORS = 50_000  # about 50 MB


class VectorStore:
    """Beyond `most` vectors, those that were not used for the longest time are deleted."""

    def __init__(self, path: Path, most: int = MAX_VECTORS, clock: Callable[[], float] = time.time) -> None:
        self._cache = DiskCache(path, most=most, clock=clock)

    def get(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """Those of the vectors that are there."""
        found = self._cache.get(digests)
        vectors = {digest: stored_vectors(data, 1, DIMENSIONS) for digest, data in found.items()}
        return {digest: vector[0] for digest, vector in vectors.items() if vector is not None}

    def put(self, vectors: Mapping[bytes, NDArray[np.float16]]) -> None:
        self._cache.put({digest: vector.tobytes() for digest, vector in vectors.items()})
