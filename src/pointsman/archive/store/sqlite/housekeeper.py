"""Deferred work of writes: removing words from the index, counting the vocabulary, merging index segments, checkpoints.

A thread does it in small steps between the writes, so that a writer never waits long. Each step is a transaction of
its own; a process that ends leaves the rest to the next one that writes.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

from pointsman.archive.store.errors import StoreError
from pointsman.archive.store.sqlite import vocabulary
from pointsman.archive.store.sqlite.database import Database, set_counter

QUIET_S = 0.2  # without a write: then all the work is done
BUSY_STEPS = 16  # at most, while writes keep coming
PASSAGES_PER_STEP = 32
PAGES_PER_MERGE = 16
TOMBSTONES_KEPT = 50_000  # for readers that follow deletions; the oldest are dropped

logger = logging.getLogger(__name__)


class Housekeeper:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._writes = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Schedule the work that a write has left."""
        with self._changed:
            self._writes += 1
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="archive-housekeeper", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def tidy(self) -> None:
        """Do all the work now.

        Raises:
            StoreError: the store cannot be written.
        """
        while self._step():
            pass
        checkpoint(self._database)

    def _run(self) -> None:
        seen = 0
        while self._wait_for_writes(seen):
            seen = self._writes
            with self._changed:
                self._changed.wait_for(lambda: self._closing, QUIET_S)
            try:
                self._work(seen)
            except StoreError as error:  # locked by another process, or no room: the next write wakes this thread again
                logger.info("housekeeping postponed: %s", error)

    def _wait_for_writes(self, seen: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._writes != seen)
            return not self._closing

    def _work(self, seen: int) -> None:
        """Finish while no writes come in; else do BUSY_STEPS, since the new writes start another turn."""
        steps = 0
        while not self._closing and (seen == self._writes or steps < BUSY_STEPS):
            steps += 1
            if not self._step():
                checkpoint(self._database)
                return

    def _step(self) -> bool:
        """Do one bounded piece of work. False: there was none."""
        with self._database.writing() as connection:
            cleaned = _delete_removed(connection)
            return _merge_segments(connection) or cleaned or vocabulary.count(connection)


def checkpoint(database: Database) -> None:
    """Move the write-ahead log into the file, as far as readers let it, without blocking."""
    with database.outside_transactions() as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _delete_removed(connection: sqlite3.Connection) -> bool:
    rows = connection.execute(
        "SELECT seq, passages.id, title, heading, text, parts FROM tombstones LEFT JOIN passages ON "
        "passages.id = passage WHERE seq > (SELECT value FROM counters WHERE name = 'cleaned') ORDER BY seq LIMIT ?",
        (PASSAGES_PER_STEP,),
    ).fetchall()
    if not rows:
        return False
    connection.executemany(
        "INSERT INTO words (words, rowid, title, heading, text, parts) VALUES ('delete', ?, ?, ?, ?, ?)",
        [row[1:] for row in rows],
    )
    numbers = [(row[1],) for row in rows]
    connection.executemany("DELETE FROM passages WHERE id = ?", numbers)
    connection.executemany("DELETE FROM vectors WHERE passage = ?", numbers)
    last = rows[-1][0]
    set_counter(connection, "cleaned", last)
    connection.execute("DELETE FROM tombstones WHERE seq <= ?", (last - TOMBSTONES_KEPT,))
    return True


def _merge_segments(connection: sqlite3.Connection) -> bool:
    before = connection.total_changes
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (PAGES_PER_MERGE,))
    return connection.total_changes - before >= 2  # FTS5 documents this as the sign that it merged something
