"""Every passage gets its vector once: in portions, from where the last run ended, in one space at a time."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.archive.embedding.base import Embeddings, passage_text
from pointsman.archive.store.base import Space, Storage

PORTION = 128
PORTION_DEADLINE_S = 120.0
AGAIN = "pointsman archive embed --again"


class MixedSpacesError(Exception):
    """The vectors that are there were made by another model; the two cannot be compared."""

    def __init__(self, stored: Space, wanted: Space) -> None:
        super().__init__(
            f"The archive's vectors were made with another model ({stored}) than is set up now ({wanted}). "
            f"Run `{AGAIN}` to make them anew; until then search goes by words."
        )


def fill(
    storage: Storage,
    embeddings: Embeddings,
    *,
    again: bool = False,
    told: Callable[[int, int], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Give vectors to the passages that have none; how many there were.

    `again`: also where there are vectors of another model, which serve until the last new one is there. `told` hears
    how many are done and how many there are to do. What is done stays done, whatever happens.

    Raises:
        MixedSpacesError: another model was used before, and `again` is not set.
        EmbeddingError: the provider gives no vectors.
        StoreError: they cannot be kept.
    """
    wanted = embeddings.space()
    stored = storage.vectors.space()
    if stored is not None and stored != wanted and not again:
        raise MixedSpacesError(stored, wanted)
    done, total = 0, storage.vectors.waiting(wanted) if told else 0
    while not stopped():
        passages = storage.vectors.pending(wanted, PORTION)
        if not passages:
            if stored is not None and stored != wanted:
                storage.vectors.use(wanted)
            break
        vectors = embeddings.embed([passage_text(passage) for passage in passages], deadline_s=PORTION_DEADLINE_S)
        rows = vectors.astype("<f2")  # half the room; the ranking is the same but for near ties
        storage.vectors.put(
            wanted, [(passage.number, row.tobytes()) for passage, row in zip(passages, rows, strict=True)]
        )
        done += len(passages)
        if told:
            told(done, max(total, done))
    return done
