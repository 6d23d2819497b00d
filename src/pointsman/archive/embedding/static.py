"""The embedding model that ships with Pointsman: offline, a second to load, a thousand passages per second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pointsman.archive.embedding.base import MAX_CHARS, PROBE_DEADLINE_S, EmbeddingError
from pointsman.archive.store.base import Space
from pointsman.providers.embeddings import EmbeddingsUnavailableError, load, unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "wordllama-l2-supercat"
DIMENSION = 256


class StaticEmbedding:
    """Fits `Embeddings`."""

    remote = False

    def space(self, *, deadline_s: float = PROBE_DEADLINE_S) -> Space:
        return Space("static", MODEL, DIMENSION)

    def embed(self, texts: Sequence[str], *, deadline_s: float) -> NDArray[np.float32]:
        try:
            model = load()
        except EmbeddingsUnavailableError as error:
            raise EmbeddingError(f"The static model cannot be loaded ({error}).") from error
        return unit(model.sums([text[:MAX_CHARS] for text in texts]))

    def rest(self) -> None:
        load().rest()

    def close(self) -> None:
        pass
