"""Computes the vectors of passages, each once: in batches, resumable, in one vector space at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pointsman.archive.embedding.base import (
    BATCH,
    EmbeddingError,
    Embeddings,
    comparable,
    embed_passage_batch,
    passage_space,
)
from pointsman.archive.store.base import Space, Storage
from pointsman.archive.store.errors import StoreError

AGAIN = "pointsman archive embed --again"

POLL_S = 3.0  # other processes write too: how often to check for passages without vectors
OTHERS_S = 30.0  # while another process computes them: how often to check whether it still does
LONGEST_PAUSE_S = 300.0

_OTHER = "another process"

logger = logging.getLogger(__name__)


class MixedSpacesError(Exception):
    """The stored vectors were computed with another model; the two cannot be compared."""

    def __init__(self, stored: Space, wanted: Space) -> None:
        super().__init__(
            f"The archive's vectors were computed with another model ({stored}) than the configured one ({wanted}). "
            f"Run `{AGAIN}` to compute them again; until then the archive is searched by words only."
        )


def embed_passages(
    storage: Storage,
    embeddings: Embeddings,
    *,
    again: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Compute the missing vectors; return how many there were.

    `again`: replace the vectors of another model, which stay in use until the last new one is stored; those of an
    older Pointsman are replaced in any case. `on_progress` gets how many are done and how many there are in total.
    Vectors that are stored stay, even if the rest fails.

    Raises:
        MixedSpacesError: another model was used before, and `again` is not set.
        EmbeddingError: the provider fails.
        StoreError: the vectors cannot be stored.
    """
    wanted = passage_space(embeddings)
    stored = storage.vectors.space()
    if stored is not None and not comparable(stored, wanted) and not again:
        raise MixedSpacesError(stored, wanted)
    done, total = 0, storage.vectors.count_pending(wanted) if on_progress else 0
    while not stopped():
        passages = storage.vectors.pending(wanted, BATCH)
        if not passages:
            if stored is not None and stored != wanted:
                storage.vectors.switch_to(wanted)
            break
        vectors = embed_passage_batch(embeddings, passages)
        storage.vectors.put(
            wanted, [(passage.number, vector) for passage, vector in zip(passages, vectors, strict=True)]
        )
        done += len(passages)
        if on_progress:
            on_progress(done, max(total, done))
    return done


class BackgroundEmbedding:
    """A thread that computes missing vectors while the archive is in use. Starts at once and ends with `close`."""

    def __init__(self, storage: Storage, embeddings: Embeddings) -> None:
        self._storage = storage
        self._embeddings = embeddings
        self._closing = threading.Event()
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="archive-embedding", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why the last attempt failed, if it did."""
        return self._problem

    def close(self) -> None:
        self._closing.set()
        self._embeddings.close()
        self._thread.join()

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._closing.is_set():
            problem = self._attempt()
            if problem is _OTHER:
                pause_s, problem = OTHERS_S, None
            else:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if problem else POLL_S
            if problem and problem != self._problem and not self._closing.is_set():
                logger.warning("%s", problem)
            self._problem = problem
            self._closing.wait(pause_s)

    def _attempt(self) -> str | None:
        """Why it failed; `_OTHER`: another process does it."""
        try:
            with self._storage.turn("embedding") as mine:
                if not mine:
                    return _OTHER
                if embed_passages(self._storage, self._embeddings, stopped=self._closing.is_set):
                    self._embeddings.rest()
        except (EmbeddingError, MixedSpacesError, StoreError) as error:
            return str(error)
        except Exception:  # vectors are optional: the archive works without them
            logger.exception("embedding failed")
            return "Embedding failed; see the log of the archive."
        return None
