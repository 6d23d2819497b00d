"""Every passage gets its vector once: in portions, from where the last run ended, in one space at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pointsman.archive.embedding.base import BATCH, EmbeddingError, Embeddings, embed_batch, passage_text
from pointsman.archive.store.base import Space, Storage
from pointsman.archive.store.errors import StoreError

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
    done, total = 0, storage.vectors.count_pending(wanted) if told else 0
    while not stopped():
        passages = storage.vectors.pending(wanted, BATCH)
        if not passages:
            if stored is not None and stored != wanted:
                storage.vectors.switch_to(wanted)
            break
        vectors = embed_batch(embeddings, [passage_text(passage) for passage in passages])
        storage.vectors.put(
            wanted, [(passage.number, vector) for passage, vector in zip(passages, vectors, strict=True)]
        )
        done += len(passages)
        if told:
            told(done, max(total, done))
    return done


LOOK_S = 3.0  # other processes write too: how often to look for passages without vectors
LONGEST_PAUSE_S = 300.0

logger = logging.getLogger(__name__)


class BackgroundEmbedding:
    """Starts at once and ends with `close`."""

    def __init__(self, storage: Storage, embeddings: Embeddings) -> None:
        self._storage = storage
        self._embeddings = embeddings
        self._closing = threading.Event()
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="archive-embedding", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why it does not get on, if it does not."""
        return self._problem

    def close(self) -> None:
        self._closing.set()
        self._embeddings.close()
        self._thread.join()

    def _run(self) -> None:
        pause_s = LOOK_S
        while not self._closing.is_set():
            problem = self._once()
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if problem else LOOK_S
            if problem and problem != self._problem and not self._closing.is_set():
                logger.warning("%s", problem)
            self._problem = problem
            self._closing.wait(pause_s)

    def _once(self) -> str | None:
        try:
            fill(self._storage, self._embeddings, stopped=self._closing.is_set)
        except (EmbeddingError, MixedSpacesError, StoreError) as error:
            return str(error)
        except Exception:  # vectors are an extra: whatever is wrong with them, the archive goes on
            logger.exception("embedding failed")
            return "Embedding failed; the log of the archive says why."
        return None
