"""The words of all passages, unstemmed, with the number of passages that have them: misspelt words are corrected by it.

Writing a document costs nothing here. Numbers of passages only grow, so those above a mark are not counted yet; the
housekeeper counts them in small steps, and discounts those that were deleted. Until then a search reads the newest
passages itself. A step and its mark are one transaction, so that each passage counts exactly once.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from pointsman.archive.store.sql.database import Connection, counter, set_counter
from pointsman.archive.store.sql.passage_texts import PLACED, Texts
from pointsman.archive.text.vocabulary import MOST_WORDS, Vocabulary
from pointsman.archive.text.words import words_of

Row = tuple[Any, ...]
"""The number of a passage, its heading, and where its text is."""

PASSAGES_PER_STEP = 300
_READ_PER_SEARCH = 1_000  # passages that are not counted yet
_MOST_READ_AHEAD = 2_000  # whose words are kept, in some megabytes


def count(connection: Connection) -> bool:
    """Do one bounded step. False: all is counted."""
    rows = _after(connection, counter(connection, "counted passage"), PASSAGES_PER_STEP)
    if not rows:
        return False
    texts = Texts(connection)
    add(connection, Counter(word for row in rows for word in _words(texts, row)))
    set_counter(connection, "counted passage", rows[-1][0])
    return True


def discount(connection: Connection, rows: Sequence[Row]) -> None:
    """Take out the words of passages that are about to be deleted, as far as they were counted."""
    counted = counter(connection, "counted passage")
    texts = Texts(connection)
    words = Counter(word for row in rows if row[0] <= counted for word in _words(texts, row))
    add(connection, Counter({word: -passages for word, passages in words.items()}))


def add(connection: Connection, words: Counter[str]) -> None:
    if not words:
        return
    revision = counter(connection, "vocabulary revision") + 1
    connection.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT (word) DO UPDATE "
        "SET passages = vocabulary.passages + excluded.passages, revision = excluded.revision",
        [(word, passages, revision) for word, passages in sorted(words.items())],
    )
    set_counter(connection, "vocabulary revision", revision)


def _after(connection: Connection, number: int, most: int) -> list[Row]:
    return connection.execute(
        f"SELECT id, heading, {PLACED} FROM passages WHERE id > ? ORDER BY id LIMIT ?", (number, most)
    ).fetchall()


def _words(texts: Texts, row: Row) -> set[str]:
    _, heading, *placed = row
    title, text = texts.of(*placed)
    return words_of(title, heading, text)


class SqlVocabulary:
    """The vocabulary in memory, brought up to date on demand."""

    def __init__(self, wake_housekeeper: Callable[[], None]) -> None:
        self._wake_housekeeper = wake_housekeeper
        self._lock = threading.Lock()
        self._known = Vocabulary()
        self._revision = 0
        self._read_up_to = 0  # a passage
        # The passages that were read before they were counted, with their words.
        self._read_ahead: deque[tuple[int, frozenset[str]]] = deque(maxlen=_MOST_READ_AHEAD)

    def current(self, connection: Connection) -> Vocabulary:
        with self._lock:
            revision, counted = counter(connection, "vocabulary revision"), counter(connection, "counted passage")
            if revision > self._revision:
                self._read_counts(connection, counted)
                self._revision = revision
            self._read_uncounted(connection, counted)
            return self._known

    def _read_counts(self, connection: Connection, counted: int) -> None:
        """Read what has changed, which is without the passages that are not counted yet: add those again."""
        changed = connection.execute(
            "SELECT word, passages FROM vocabulary WHERE revision > ? ORDER BY passages DESC LIMIT ?",
            (self._revision, MOST_WORDS),
        ).fetchall()
        self._known.set(changed)
        while self._read_ahead and self._read_ahead[0][0] <= counted:
            self._read_ahead.popleft()
        if self._read_ahead:
            words = {word for word, _ in changed}
            for _, said in self._read_ahead:
                self._known.count_passage(said & words)

    def _read_uncounted(self, connection: Connection, counted: int) -> None:
        after = max(self._read_up_to, counted)
        newest = _after(connection, after, _READ_PER_SEARCH)
        texts = Texts(connection)
        for row in newest:
            said = frozenset(_words(texts, row))
            self._known.count_passage(said)
            self._read_ahead.append((row[0], said))
        if newest:
            self._read_up_to = newest[-1][0]
        if counter(connection, "passage") > counted:
            self._wake_housekeeper()
