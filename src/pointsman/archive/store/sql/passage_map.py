"""Which passages there are, in memory. It follows the store: a write costs a reader what the write has changed.

Numbers of passages only grow, and deletions are listed in `tombstones`. What never changes of a passage is kept once,
for all states of the store; a state of its own is one flag for each passage.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pointsman.archive.store.corpus import Corpus
from pointsman.archive.store.postings import Flags
from pointsman.archive.store.sql.database import Connection, placeholders
from pointsman.archive.store.sql.state import read_state
from pointsman.archive.store.text_search import FoundCache

SCORED_BYTES = 16_000_000  # of what was found in the newest state
_DELETIONS_KEPT = 20_000  # for readers that began before the last writes
_SPARE = 4  # a quarter: room for new passages

_PASSAGES = "SELECT id, document, collection, length FROM passages WHERE document IS NOT NULL AND"
_CHANGES = f"{_PASSAGES} id > ? UNION ALL SELECT passage, 0, 0, seq FROM tombstones WHERE seq > ?"

Row = tuple[int, int, int, int]


class PassageMap:
    """Thread-safe. For a transaction that began before the newest write, it takes the newest changes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._columns = np.zeros((3, 0), np.int32)  # document, collection and length by passage, deleted ones included
        self._newest: Corpus | None = None
        self._scored = FoundCache(SCORED_BYTES)  # in the newest state
        self._gone: deque[tuple[int, int]] = deque(maxlen=_DELETIONS_KEPT)  # tombstones in order, and their passages

    def current(self, connection: Connection) -> tuple[Corpus, FoundCache | None]:
        """What the transaction sees; None for a cache if other transactions see newer passages."""
        _, last, first_tombstone, tombstones, *_ = read_state(connection)
        with self._lock:
            newest = self._newest
            if newest is not None and (newest.last, newest.tombstones) == (last, tombstones):
                return newest, self._scored
            if newest is None or first_tombstone > newest.tombstones + 1:  # some of its deletions are not listed
                self._gone.clear()
                self._columns = np.zeros((3, 0), np.int32)
                self._newest = self._read(connection, last, tombstones)
            elif newest.last > last or newest.tombstones > tombstones:
                return self._earlier(connection, newest, last, tombstones), None
            else:
                self._newest = self._advanced(connection, newest, last, tombstones)
            self._scored = FoundCache(SCORED_BYTES)
            return self._newest, self._scored

    def _read(self, connection: Connection, last: int, tombstones: int) -> Corpus:
        """From nothing."""
        self._make_room(last + 1)
        alive = np.zeros(last + 1, np.bool_)
        alive[self._fill(connection.execute(f"{_PASSAGES} id > 0").fetchall())] = True
        return self._state(alive, int(self._columns[2, : last + 1].sum(dtype=np.int64)), tombstones)

    def _advanced(self, connection: Connection, known: Corpus, last: int, tombstones: int) -> Corpus:
        self._make_room(last + 1)
        rows: list[Row] = connection.execute(_CHANGES, (known.last, known.tombstones)).fetchall()
        added = self._fill([row for row in rows if row[1]])
        gone = sorted((seq, passage) for passage, document, _, seq in rows if not document)
        self._gone += gone
        alive = np.zeros(last + 1, np.bool_)
        alive[: known.last + 1] = known.alive
        removed = [passage for _, passage in gone if alive[passage]]
        alive[added] = True
        alive[removed] = False
        lengths = self._columns[2]
        words = known.words + int(lengths[added].sum(dtype=np.int64)) - int(lengths[removed].sum(dtype=np.int64))
        return self._state(alive, words, tombstones)

    def _earlier(self, connection: Connection, newer: Corpus, last: int, tombstones: int) -> Corpus:
        """Without the passages that came later, and with those that are gone since."""
        gone = [passage for seq, passage in self._gone if seq > tombstones]
        if len(gone) < newer.tombstones - tombstones:  # not all are known
            return PassageMap()._read(connection, last, tombstones)
        back = [passage for passage in gone if passage <= last]
        unknown = [passage for passage in back if not self._columns[0, passage]]  # came and went between two views
        if unknown:
            self._fill(connection.execute(f"{_PASSAGES} id IN ({placeholders(unknown)})", unknown).fetchall())
        alive = newer.alive[: last + 1].copy()
        alive[back] = True
        return self._state(alive, int(self._columns[2, : last + 1][alive].sum(dtype=np.int64)), tombstones)

    def _make_room(self, size: int) -> None:
        if size > self._columns.shape[1]:
            columns = np.zeros((3, size + size // _SPARE), np.int32)
            columns[:, : self._columns.shape[1]] = self._columns
            self._columns = columns

    def _fill(self, rows: Sequence[Row]) -> npt.NDArray[np.int64]:
        """Keep these passages; their numbers."""
        numbers, *columns = np.array(rows, np.int64).reshape(-1, 4).T
        self._columns[:, numbers] = columns
        return numbers

    def _state(self, alive: Flags, words: int, tombstones: int) -> Corpus:
        alive.flags.writeable = False  # shared by all searches
        document_of, collection_of, lengths = self._columns[:, : len(alive)]
        return Corpus(document_of, collection_of, lengths, alive, words, tombstones)
