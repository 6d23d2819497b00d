"""Answers for a server that is away: callers hear why at once, while one thread tries to reach it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pointsman.archive.store.errors import StoreAwayError, StoreError

AGAIN_S = 1.0


class Outage:
    """Begins with `begin` and ends when `probe` raises no StoreAwayError. Thread-safe."""

    def __init__(self, probe: Callable[[], object], *, again_s: float = AGAIN_S) -> None:
        self._probe = probe
        self._again_s = again_s
        self._lock = threading.Lock()
        self._error: StoreAwayError | None = None
        self._closing = threading.Event()

    def check(self) -> None:
        """Raises StoreAwayError during an outage."""
        error = self._error
        if error is not None:
            raise StoreAwayError(str(error))

    def begin(self, error: StoreAwayError) -> None:
        with self._lock:
            if self._error is None and not self._closing.is_set():
                self._error = error
                threading.Thread(target=self._run, name="archive-outage", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(self._again_s):
            try:
                self._probe()
            except StoreAwayError as error:
                self._error = error
                continue
            except StoreError:  # it answers: the next call says what is wrong
                pass
            break
        self._error = None
