"""The words of all passages, unstemmed, with the number of passages that have them: what slips are corrected by.

Writing a document costs nothing here. Passages have growing numbers, so those above a mark are the ones not counted
yet; the housekeeper counts them in small steps, and discounts those that were cleaned away. Until it has, a search
looks through the newest itself. A step and its mark are one transaction: nothing is counted twice or never.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable

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

COUNTED_AT_ONCE = 300  # passages in one step
_LOOKED_THROUGH = 1_000  # by one search, of passages that are not counted yet


def count(connection: sqlite3.Connection) -> bool:
    """One bounded step. False: all is counted."""
    mark = _counter(connection, "counted passage")
    new = connection.execute(
        "SELECT id, title, heading, text FROM passages WHERE id > ? ORDER BY id LIMIT ?", (mark, COUNTED_AT_ONCE)
    ).fetchall()
    gone = connection.execute(
        "SELECT seq, title, heading, text FROM vocabulary_gone ORDER BY seq LIMIT ?", (COUNTED_AT_ONCE,)
    ).fetchall()
    if not new and not gone:
        return False
    words = Counter(word for _, *texts in new for word in words_of(*texts))
    words.subtract(word for _, *texts in gone for word in words_of(*texts))
    revision = _counter(connection, "vocabulary revision") + 1
    connection.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT (word) DO UPDATE "
        "SET passages = passages + excluded.passages, revision = excluded.revision",
        [(word, passages, revision) for word, passages in sorted(words.items())],
    )
    if gone:
        connection.execute("DELETE FROM vocabulary_gone WHERE seq <= ?", (gone[-1][0],))
    _set(connection, "counted passage", new[-1][0] if new else mark)
    _set(connection, "vocabulary revision", revision)
    return True


class SqliteVocabulary:
    """The vocabulary in memory, brought up to date when it is asked for."""

    def __init__(self, wake_housekeeper: Callable[[], None]) -> None:
        self._wake_housekeeper = wake_housekeeper
        self._lock = threading.Lock()
        self._known = Vocabulary()
        self._revision = 0
        self._looked_through = 0  # up to this passage

    def current(self, connection: sqlite3.Connection) -> Vocabulary:
        with self._lock:
            revision = _counter(connection, "vocabulary revision")
            if revision > self._revision:
                self._known.set(
                    connection.execute(
                        "SELECT word, passages FROM vocabulary WHERE revision > ? ORDER BY passages DESC LIMIT ?",
                        (self._revision, MOST_WORDS),
                    )
                )
                self._revision = revision
            self._look_through(connection, _counter(connection, "counted passage"))
            return self._known

    def _look_through(self, connection: sqlite3.Connection, counted: int) -> None:
        after = max(self._looked_through, counted)
        newest = connection.execute(
            "SELECT id, title, heading, text FROM passages WHERE id > ? ORDER BY id LIMIT ?", (after, _LOOKED_THROUGH)
        ).fetchall()
        for _, *texts in newest:
            self._known.seen(words_of(*texts))
        if newest:
            self._looked_through = newest[-1][0]
        if _counter(connection, "passage") > counted:
            self._wake_housekeeper()


def _counter(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return int(value)


def _set(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute("UPDATE counters SET value = ? WHERE name = ?", (value, name))
