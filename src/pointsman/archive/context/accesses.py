"""Notes which files are read, in memory at first: a reader never waits for the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pointsman.archive.model.context import Access
from pointsman.archive.store.context import ContextStore
from pointsman.archive.store.errors import StoreError

logger = logging.getLogger(__name__)

FLUSH_S = 1.0
MOST_WAITING = 5_000  # files; more than that between two flushes are not noted


class StoredAccesses:
    """Fits `AccessLog`. A thread of its own writes down what was noted, soon after it was."""

    def __init__(
        self, store: ContextStore, *, flush_s: float = FLUSH_S, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._flush_s = flush_s
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], Access] = {}
        self._noted = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="accesses", daemon=True)
        self._thread.start()

    def record(self, root: str, path: str) -> None:
        with self._lock:
            known = self._waiting.get((root, path))
            if known is None and len(self._waiting) >= MOST_WAITING:
                return
            count = known.count if known else 0
            self._waiting[root, path] = Access(root, path, count + 1, self._wall_clock())
        self._noted.set()

    def flush(self) -> None:
        """Write now what was noted; what cannot be written is not worth keeping a tool from its work."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        if not waiting:
            return
        try:
            self._store.record_accesses(waiting)
        except StoreError as error:
            logger.warning("%d reads of files were not noted: %s", len(waiting), error)

    def close(self) -> None:
        self._ended.set()
        self._noted.set()
        self._thread.join()
        self.flush()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._noted.wait()
            self._ended.wait(self._flush_s)  # those who read on meanwhile are written with the first
            self._noted.clear()
            self.flush()
