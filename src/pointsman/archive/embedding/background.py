"""The thread that gives new passages their vectors while the archive answers from their words."""

from __future__ import annotations

import logging
import threading

from pointsman.archive.embedding.base import EmbeddingError, Embeddings
from pointsman.archive.embedding.filling import MixedSpacesError, fill
from pointsman.archive.store.base import Storage
from pointsman.archive.store.errors import StoreError

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
