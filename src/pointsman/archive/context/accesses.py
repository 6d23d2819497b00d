"""Which files are read: recorded in memory first, written in the background, and weighed as popularity."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable

from pointsman.archive.model.context import Access, ContextItem
from pointsman.archive.store.context import ContextStore
from pointsman.archive.store.errors import StoreError

logger = logging.getLogger(__name__)

FLUSH_S = 1.0
MAX_PENDING = 5_000  # files; further ones are dropped until the next flush
HALF_LIFE_S = 14 * 86_400.0


class StoredAccesses:
    """Fits `AccessLog`. Records in memory; a thread writes to the store, so that no reader waits for it."""

    def __init__(
        self, store: ContextStore, *, flush_s: float = FLUSH_S, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._flush_s = flush_s
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, str], Access] = {}
        self._recorded = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="accesses", daemon=True)
        self._thread.start()

    def record(self, root: str, path: str) -> None:
        with self._lock:
            known = self._pending.get((root, path))
            if known is None and len(self._pending) >= MAX_PENDING:
                return
            count = known.count if known else 0
            self._pending[root, path] = Access(root, path, count + 1, self._wall_clock())
        self._recorded.set()

    def flush(self) -> None:
        """Write now. Accesses that cannot be written are dropped."""
        with self._lock:
            pending, self._pending = list(self._pending.values()), {}
        if not pending:
            return
        try:
            self._store.record_accesses(pending)
        except StoreError as error:
            logger.warning("%d file reads were not recorded: %s", len(pending), error)

    def close(self) -> None:
        self._ended.set()
        self._recorded.set()
        self._thread.join()
        self.flush()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._recorded.wait()
            self._ended.wait(self._flush_s)  # coalesce the reads of this interval into one write
            self._recorded.clear()
            self.flush()


class Popularity:
    """How much a file or module is read, with exponential decay: from 0 to 1, which is the most read."""

    def __init__(self, accesses: Iterable[Access], now: float, module_of: Callable[[str], str | None]) -> None:
        files: dict[str, float] = {}
        modules: dict[str, float] = {}
        for access in accesses:
            weight = access.count * 0.5 ** (max(0.0, now - access.last) / HALF_LIFE_S)
            files[access.path] = files.get(access.path, 0.0) + weight
            module = module_of(access.path)
            if module is not None:
                modules[module.casefold()] = modules.get(module.casefold(), 0.0) + weight
        self._files = _normalize(files)
        self._modules = _normalize(modules)

    def of(self, item: ContextItem) -> float:
        by_file = self._files.get(item.path, 0.0) if item.path else 0.0
        by_module = self._modules.get(item.module.casefold(), 0.0) if item.module else 0.0
        return max(by_file, by_module)


def _normalize(weights: dict[str, float]) -> dict[str, float]:
    """By logarithm: ten reads do not mean ten times as much as one."""
    most = max((math.log1p(weight) for weight in weights.values()), default=0.0)
    return {name: math.log1p(weight) / most for name, weight in weights.items()} if most else {}
