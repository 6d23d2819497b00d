"""The interface of an embedding provider."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pointsman.archive.cpu_turns import computing
from pointsman.archive.store.base import PendingPassage, Space

if TYPE_CHECKING:  # heavy: loaded when there is something to embed
    import numpy as np
    from numpy.typing import NDArray

MAX_CHARS = 6_000  # of one text; passages are shorter, queries may not be
BATCH = 128  # texts
TEXTS_PER_TURN = 16  # of a model in this process: some milliseconds
BATCH_DEADLINE_S = 120.0
PROBE_DEADLINE_S = 30.0  # to find out the dimension of a server's vectors

# In a mean of token vectors, a title of six words disappears beside a text of two hundred. Measured: both gain.
TITLE_WEIGHT, HEADING_WEIGHT = 0.8, 0.3  # the text has 1
_WORD = re.compile(r"[^\W\d_]{3,}(?![^\W\d_]|[-_.# ]?\d)")  # without a number behind it
_WEIGHTED = "+title"  # appended to the model's name in the space of such vectors


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

    def rest(self) -> None:
        """Many passages are done: release memory that can be had again."""
        ...

    def close(self) -> None:
        """Cancel the requests under way."""
        ...


def passage_space(embeddings: Embeddings, *, deadline_s: float = PROBE_DEADLINE_S) -> Space:
    """The space of the vectors of passages.

    Raises:
        EmbeddingError: as `Embeddings.space`.
    """
    space = embeddings.space(deadline_s=deadline_s)
    return space if embeddings.remote else replace(space, model=space.model + _WEIGHTED)


def comparable(stored: Space, wanted: Space) -> bool:
    """Whether a query can be compared with stored vectors: one model made both, whatever the title's weight."""
    return stored == wanted or replace(stored, model=stored.model + _WEIGHTED) == wanted


def embed_passage_batch(embeddings: Embeddings, passages: Sequence[PendingPassage]) -> list[bytes]:
    """Title and heading are part of what a passage means. A model that reads order gets them as the first lines.

    Raises:
        EmbeddingError: the provider gives no vectors.
    """
    if embeddings.remote:
        return embed_batch(embeddings, [_passage_text(passage) for passage in passages])
    return _stored(_weighted(embeddings, passages))


def embed_batch(embeddings: Embeddings, texts: Sequence[str]) -> list[bytes]:
    """Vectors as stores keep them: float16, little-endian, which halves their size and changes only near ties.

    Raises:
        EmbeddingError: the provider gives no vectors.
    """
    return _stored(embeddings.embed(texts, deadline_s=BATCH_DEADLINE_S))


def _passage_text(passage: PendingPassage) -> str:
    return "\n".join(filter(None, (passage.title, passage.heading, passage.text)))[:MAX_CHARS]


def _weighted(embeddings: Embeddings, passages: Sequence[PendingPassage]) -> NDArray[np.float32]:
    import numpy as np

    from pointsman.providers.embeddings import unit

    rows: dict[str, int] = {}  # the passages of a document share its title
    titles = [rows.setdefault(passage.title, len(rows)) for passage in passages]
    headings = [rows.setdefault(passage.heading or "", len(rows)) for passage in passages]
    texts = [rows.setdefault(passage.text, len(rows)) for passage in passages]
    vectors = np.concatenate([_embed_in_turn(embeddings, some) for some in _parts(list(rows))])
    weights = np.array([[_title_weight(passage.title)] for passage in passages], dtype=np.float32)
    mixed = vectors[texts] + weights * vectors[titles] + HEADING_WEIGHT * vectors[headings]
    return unit(mixed.astype("f4", copy=False))


def _embed_in_turn(embeddings: Embeddings, texts: Sequence[str]) -> NDArray[np.float32]:
    with computing():
        return embeddings.embed(texts, deadline_s=BATCH_DEADLINE_S)


def _parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """So few that a search does not wait for long."""
    for start in range(0, len(texts), TEXTS_PER_TURN):
        yield texts[start : start + TEXTS_PER_TURN]


def _title_weight(title: str) -> float:
    """None for `DEC-0054` and `2026-01-31`: a number says nothing about the text."""
    return TITLE_WEIGHT if _WORD.search(title) else 0.0


def _stored(vectors: NDArray[np.float32]) -> list[bytes]:
    return [vector.tobytes() for vector in vectors.astype("<f2")]
