"""The journal of one of several replicas on a state folder: each writes its own run, and all draw from one counter.

The files are those of `segments.py`. A run's lock says whether its replica lives, so any replica moves what a dead one
left, and its unfinished calls become `interrupted`.
"""

from __future__ import annotations

import fcntl
import os

from pointsman.router.audit.journal import Journal

COUNTER = "seq"  # in the journal's folder: the last seq, in decimal
_MOST_BYTES = 20


class SharedJournal(Journal):
    """A row's `seq` is unique and growing over all replicas, so lists, pages and `tail -f` need not know of them."""

    _counter = -1

    def open(self) -> None:
        super().open()
        if self._counter < 0:
            self._counter = os.open(self._folder / COUNTER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def next_seq(self) -> int:
        """Raises OSError."""
        first = super().next_seq()
        fcntl.flock(self._counter, fcntl.LOCK_EX)
        try:
            self._next_seq = max(first, self._last_drawn() + 1)
            os.pwrite(self._counter, b"%020d" % self._next_seq, 0)
        finally:
            fcntl.flock(self._counter, fcntl.LOCK_UN)
        return self._next_seq

    @property
    def last_seq(self) -> int:
        return max(self._next_seq - 1, self._last_drawn())

    def close(self) -> None:
        super().close()
        if self._counter >= 0:
            os.close(self._counter)
            self._counter = -1

    def _last_drawn(self) -> int:
        drawn = os.pread(self._counter, _MOST_BYTES, 0) if self._counter >= 0 else b""
        return int(drawn) if drawn.isdigit() else 0  # empty at the first start
