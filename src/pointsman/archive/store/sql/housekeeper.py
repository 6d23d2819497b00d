"""Deferred work of writes: deleting removed passages, counting the vocabulary, merging index segments.

A thread does it in small steps between the writes, so that a writer never waits long. Each step is a transaction of
its own; a process that ends leaves the rest to the next one that writes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pointsman.archive.cpu_turns import computing
from pointsman.archive.store.errors import StoreError
from pointsman.archive.store.sql import vocabulary
from pointsman.archive.store.sql.database import Connection, Database, set_counter
from pointsman.archive.store.sql.passage_texts import PLACED
from pointsman.archive.store.sql.words import SqlWords, merge_step

QUIET_S = 0.2  # without a write: then all the work is done
OTHERS_S = 30.0  # while another process does it: how often to check whether it still does
BUSY_STEPS = 16  # at most, while writes keep coming
PASSAGES_PER_STEP = 128
TOMBSTONES_KEPT = 50_000  # for readers that follow deletions; the oldest are dropped

logger = logging.getLogger(__name__)


class Housekeeper:
    """`finish`: what the engine does when all is done. Of several processes on one store, one works at a time."""

    def __init__(self, database: Database, words: SqlWords, finish: Callable[[], None]) -> None:
        self._database = database
        self._words = words
        self._finish = finish
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
        self._finish()

    def _run(self) -> None:
        seen = 0
        while self._wait_for_writes(seen):
            seen = self._writes
            with self._changed:
                self._changed.wait_for(lambda: self._closing, QUIET_S)
            try:
                while not self._worked(seen):
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing, OTHERS_S)
            except StoreError as error:  # locked by another process, or no room: the next write wakes this thread again
                logger.info("housekeeping postponed: %s", error)

    def _wait_for_writes(self, seen: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._writes != seen)
            return not self._closing

    def _worked(self, seen: int) -> bool:
        """False: another process does the work, perhaps without that of our last write."""
        with self._database.turn("housekeeping") as mine:
            if mine:
                self._work(seen)
        return mine or self._closing

    def _work(self, seen: int) -> None:
        """Finish while no writes come in; else do BUSY_STEPS, since the new writes start another turn."""
        steps = 0
        while not self._closing and (seen == self._writes or steps < BUSY_STEPS):
            steps += 1
            if not self._step():
                self._finish()
                return

    def _step(self) -> bool:
        """Do one bounded piece of work. False: there was none."""
        with self._database.writing() as connection, computing():
            cleaned = _delete_removed(connection)
            return merge_step(connection, self._words.corpus(connection)) or cleaned or vocabulary.count(connection)


def _delete_removed(connection: Connection) -> bool:
    rows = connection.execute(
        f"SELECT seq, passages.id, heading, {PLACED} FROM tombstones LEFT JOIN passages ON passages.id = passage "
        "WHERE seq > (SELECT value FROM counters WHERE name = 'cleaned') ORDER BY seq LIMIT ?",
        (PASSAGES_PER_STEP,),
    ).fetchall()
    if not rows:
        return False
    present = [row[1:] for row in rows if row[1] is not None]
    vocabulary.discount(connection, present)
    numbers = [(row[0],) for row in present]
    connection.executemany("DELETE FROM passages WHERE id = ?", numbers)
    connection.executemany("DELETE FROM vectors WHERE passage = ?", numbers)
    last = rows[-1][0]
    set_counter(connection, "cleaned", last)
    connection.executemany(
        "DELETE FROM removed_texts WHERE id = ? AND NOT EXISTS "
        "(SELECT 1 FROM passages WHERE removed = removed_texts.id)",
        list({(row[3],) for row in present}),
    )
    connection.execute("DELETE FROM tombstones WHERE seq <= ?", (last - TOMBSTONES_KEPT,))
    return True
