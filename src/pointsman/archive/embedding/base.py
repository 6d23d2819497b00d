"""What a provider of embeddings is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pointsman.archive.store.base import PendingPassage, Space

if TYPE_CHECKING:  # heavy: loaded when there is something to embed
    import numpy as np
    from numpy.typing import NDArray

MAX_CHARS = 6_000  # of one text; passages are shorter, queries may not be
BATCH = 128  # texts
BATCH_DEADLINE_S = 120.0
PROBE_DEADLINE_S = 30.0  # to find out what a server's vectors are like


class EmbeddingError(Exception):
    """No vectors now. The message says why, for the person who keeps the archive."""


class Embeddings(Protocol):
    """Thread-safe."""

    remote: bool  # costs time and perhaps money: queries go one after another, vectors weigh more in the ranking

    def space(self, *, deadline_s: float = PROBE_DEADLINE_S) -> Space:
        """Where its vectors can be compared.

        Raises:
            EmbeddingError: it cannot be told, since a server must be asked and does not answer.
        """
        ...

    def embed(self, texts: Sequence[str], *, deadline_s: float) -> NDArray[np.float32]:
        """A row of length 1 for each text; zeros where there is nothing to embed.

        Raises:
            EmbeddingError: not within the time, or not at all.
        """
        ...

    def close(self) -> None:
        """End what is under way; it fails."""
        ...


def passage_text(passage: PendingPassage) -> str:
    """What a passage means depends on what it is a passage of."""
    return "\n".join(filter(None, (passage.title, passage.heading, passage.text)))[:MAX_CHARS]


def embed_batch(embeddings: Embeddings, texts: Sequence[str]) -> list[bytes]:
    """Vectors as stores keep them: float16, little-endian, which halves their size and changes only near ties.

    Raises:
        EmbeddingError: the provider gives no vectors.
    """
    vectors = embeddings.embed(texts, deadline_s=BATCH_DEADLINE_S).astype("<f2")
    return [vector.tobytes() for vector in vectors]
