"""The interface of an embedding provider."""

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
PROBE_DEADLINE_S = 30.0  # to find out the dimension of a server's vectors


class EmbeddingError(Exception):
    """No vectors could be computed. The message says why, for the operator of the archive."""


class Embeddings(Protocol):
    """Thread-safe."""

    remote: bool  # slow and perhaps paid: queries are serialized, and vectors weigh more in the ranking

    def space(self, *, deadline_s: float = PROBE_DEADLINE_S) -> Space:
        """The vector space of this provider.

        Raises:
            EmbeddingError: it is unknown until a server answers, and the server does not.
        """
        ...

    def embed(self, texts: Sequence[str], *, deadline_s: float) -> NDArray[np.float32]:
        """A row of length 1 for each text; zeros for an empty one.

        Raises:
            EmbeddingError: not before the deadline, or not at all.
        """
        ...

    def close(self) -> None:
        """Cancel the requests under way."""
        ...


def passage_text(passage: PendingPassage) -> str:
    """The text to embed: title and heading are part of what a passage means."""
    return "\n".join(filter(None, (passage.title, passage.heading, passage.text)))[:MAX_CHARS]


def embed_batch(embeddings: Embeddings, texts: Sequence[str]) -> list[bytes]:
    """Vectors as stores keep them: float16, little-endian, which halves their size and changes only near ties.

    Raises:
        EmbeddingError: the provider gives no vectors.
    """
    vectors = embeddings.embed(texts, deadline_s=BATCH_DEADLINE_S).astype("<f2")
    return [vector.tobytes() for vector in vectors]
