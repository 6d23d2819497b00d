"""The words of all passages, unstemmed, with the number of passages that have them: misspelt words are corrected by it.

Writing a document costs nothing here. Numbers of passages only grow, so those above a mark are not counted yet; the
housekeeper counts them in small steps, and discounts those that were deleted. Until then a search reads the newest
passages itself. A step and its mark are one transaction, so that each passage counts exactly once.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable

from pointsman.archive.store.sqlite.database import counter, set_counter
from pointsman.archive.text.vocabulary import MOST_WORDS, Vocabulary
from pointsman.archive.text.words import words_of

SCHEMA = """
CREATE TABLE vocabulary (word TEXT PRIMARY KEY, passages INTEGER NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX vocabulary_by_revision ON vocabulary (revision);
CREATE TABLE vocabulary_gone (seq INTEGER PRIMARY KEY, title TEXT, heading TEXT, text TEXT);
INSERT INTO counters VALUES ('counted passage', 0), ('vocabulary revision', 0);
CREATE TRIGGER vocabulary_discounts BEFORE DELETE ON passages
WHEN old.id <= (SELECT value FROM counters WHERE name = 'counted passage')
BEGIN
    INSERT INTO vocabulary_gone (title, heading, text) VALUES (old.title, old.heading, old.text);
END;
"""

PASSAGES_PER_STEP = 300
_READ_PER_SEARCH = 1_000  # passages that are not counted yet


def count(connection: sqlite3.Connection) -> bool:
    """Do one bounded step. False: all is counted."""
    mark = counter(connection, "counted passage")
    new = connection.execute(
        "SELECT id, title, heading, text FROM passages WHERE id > ? ORDER BY id LIMIT ?", (mark, PASSAGES_PER_STEP)
    ).fetchall()
    gone = connection.execute(
        "SELECT seq, title, heading, text FROM vocabulary_gone ORDER BY seq LIMIT ?", (PASSAGES_PER_STEP,)
    ).fetchall()
    if not new and not gone:
        return False
    words = Counter(word for _, *texts in new for word in words_of(*texts))
    words.subtract(word for _, *texts in gone for word in words_of(*texts))
    revision = counter(connection, "vocabulary revision") + 1
    connection.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT (word) DO UPDATE "
        "SET passages = passages + excluded.passages, revision = excluded.revision",
        [(word, passages, revision) for word, passages in sorted(words.items())],
    )
    if gone:
        connection.execute("DELETE FROM vocabulary_gone WHERE seq <= ?", (gone[-1][0],))
    set_counter(connection, "counted passage", new[-1][0] if new else mark)
    set_counter(connection, "vocabulary revision", revision)
    return True


class SqliteVocabulary:
    """The vocabulary in memory, brought up to date on demand."""

    def __init__(self, wake_housekeeper: Callable[[], None]) -> None:
        self._wake_housekeeper = wake_housekeeper
        self._lock = threading.Lock()
        self._known = Vocabulary()
        self._revision = 0
        self._read_up_to = 0  # a passage

    def current(self, connection: sqlite3.Connection) -> Vocabulary:
        with self._lock:
            revision = counter(connection, "vocabulary revision")
            if revision > self._revision:
                self._known.set(
                    connection.execute(
                        "SELECT word, passages FROM vocabulary WHERE revision > ? ORDER BY passages DESC LIMIT ?",
                        (self._revision, MOST_WORDS),
                    )
                )
                self._revision = revision
            self._read_uncounted(connection, counter(connection, "counted passage"))
            return self._known

    def _read_uncounted(self, connection: sqlite3.Connection, counted: int) -> None:
        after = max(self._read_up_to, counted)
        newest = connection.execute(
            "SELECT id, title, heading, text FROM passages WHERE id > ? ORDER BY id LIMIT ?", (after, _READ_PER_SEARCH)
        ).fetchall()
        for _, *texts in newest:
            self._known.count_passage(words_of(*texts))
        if newest:
            self._read_up_to = newest[-1][0]
        if counter(connection, "passage") > counted:
            self._wake_housekeeper()
