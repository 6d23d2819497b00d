"""Which document each passage belongs to, in memory: whole documents are sought among tens of thousands of passages."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PassageMaps:
    document_of: Numbers  # by number of the passage; 0: it is gone, or never was
    lengths: Numbers  # passages of each document, by its number


class PassageMap:
    """Follows the store: numbers of passages only grow, and what goes is noted in `tombstones`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passages = -1  # known up to this
        self._tombstones = 0
        self._known = PassageMaps(np.zeros(1, np.int64), np.zeros(1, np.int64))

    def current(self, connection: sqlite3.Connection) -> PassageMaps:
        """As new as the transaction, or newer where another reader was here: what it misses then is going."""
        (passages,) = connection.execute("SELECT value FROM counters WHERE name = 'passage'").fetchone()
        first, last = connection.execute(
            "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM tombstones"
        ).fetchone()
        with self._lock:
            if passages <= self._passages and last <= self._tombstones:
                return self._known
            afresh = first > self._tombstones + 1
            known = np.zeros(1, np.int64) if afresh or self._passages < 0 else self._known.document_of
            document_of = np.zeros(max(passages + 1, len(known)), np.int64)
            document_of[: len(known)] = known
            rows = connection.execute(
                "SELECT id, document FROM passages WHERE id >= ? AND document IS NOT NULL", (len(known),)
            ).fetchall()
            if rows:
                numbers = np.array(rows, np.int64)
                document_of[numbers[:, 0]] = numbers[:, 1]
            gone = connection.execute("SELECT passage FROM tombstones WHERE seq > ?", (self._tombstones,)).fetchall()
            document_of[[number for (number,) in gone if number < len(document_of)]] = 0
            lengths = np.bincount(document_of)
            lengths[0] = 0
            self._known = PassageMaps(document_of, lengths.astype(np.int64))
            self._passages, self._tombstones = passages, last
            return self._known
