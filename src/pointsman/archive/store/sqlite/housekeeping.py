"""What a write leaves for later: words that went, the vocabulary, the merging of index segments, the log of the file.

A thread does it in small steps between the writes, so that nobody waits long for it. Each step is a transaction of
its own; what is left undone when the process ends is done by the next one that writes.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

from pointsman.archive.store.errors import StoreError
from pointsman.archive.store.sqlite import vocabulary
from pointsman.archive.store.sqlite.database import Database

QUIET_S = 0.2  # all is done when nobody has written for so long
BUSY_STEPS = 16  # and so much of it each time somebody has
BURIED_AT_ONCE = 32
MERGED_PAGES = 16
TOMBSTONES_KEPT = 50_000  # for those who follow what went; older ones are forgotten

logger = logging.getLogger(__name__)


class Housekeeper:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._writes = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Somebody has written."""
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
        """All that there is to do, now.

        Raises:
            StoreError: it cannot be written.
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
            except StoreError as error:  # somebody else writes, or no room: the next write wakes us again
                logger.info("housekeeping put off: %s", error)

    def _wait_for_writes(self, seen: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._writes != seen)
            return not self._closing

    def _work(self, seen: int) -> None:
        """To the end while it is quiet, else a little: there is another turn, since there are writes not yet seen."""
        steps = 0
        while not self._closing and (seen == self._writes or steps < BUSY_STEPS):
            steps += 1
            if not self._step():
                checkpoint(self._database)
                return

    def _step(self) -> bool:
        """One bounded piece of work. False: there was none."""
        with self._database.writing() as connection:
            cleaned = _clean(connection)
            return _merge(connection) or cleaned or vocabulary.count(connection)


def checkpoint(database: Database) -> None:
    """Move what was logged into the file, as far as readers let it; nobody waits."""
    with database.outside_transactions() as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _clean(connection: sqlite3.Connection) -> bool:
    rows = connection.execute(
        "SELECT seq, passages.id, title, heading, text, parts FROM tombstones LEFT JOIN passages ON "
        "passages.id = passage WHERE seq > (SELECT value FROM counters WHERE name = 'cleaned') ORDER BY seq LIMIT ?",
        (BURIED_AT_ONCE,),
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
    connection.execute("UPDATE counters SET value = ? WHERE name = 'cleaned'", (last,))
    connection.execute("DELETE FROM tombstones WHERE seq <= ?", (last - TOMBSTONES_KEPT,))
    return True


def _merge(connection: sqlite3.Connection) -> bool:
    before = connection.total_changes
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (MERGED_PAGES,))
    return connection.total_changes - before >= 2  # as FTS5 says that it did something
