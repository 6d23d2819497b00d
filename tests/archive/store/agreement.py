"""Whether a store agrees with itself: its tables with each other, and the index of words with the texts."""

from __future__ import annotations

import numpy as np

from pointsman.archive.store.postings import PassageTexts, Postings, index, unpack
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sql.passage_texts import PLACED, Texts
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.archive.text.words import identifier_parts
from tests.archive.engines import AnyStorage

AGREEMENT = {
    "passages of no document": (
        "SELECT count(*) FROM passages WHERE document IS NOT NULL AND document NOT IN (SELECT id FROM documents)"
    ),
    "documents that miscount their passages": (
        "SELECT count(*) FROM documents WHERE passages <> "
        "(SELECT count(*) FROM passages WHERE passages.document = documents.id)"
    ),
    "places that are taken twice": (
        "SELECT count(*) FROM (SELECT 1 FROM passages WHERE document IS NOT NULL "
        "GROUP BY document, place HAVING count(*) > 1) AS taken"
    ),
    "collections that miscount": (
        "SELECT count(*) FROM collections WHERE documents <> (SELECT count(*) FROM documents) "
        "OR passages <> (SELECT count(*) FROM passages WHERE document IS NOT NULL)"
    ),
    "dead passages without a tombstone": (
        "SELECT count(*) FROM passages WHERE document IS NULL AND id NOT IN (SELECT passage FROM tombstones "
        "WHERE seq > (SELECT value FROM counters WHERE name = 'cleaned'))"
    ),
    "living passages with a tombstone": (
        "SELECT count(*) FROM passages WHERE document IS NOT NULL AND id IN (SELECT passage FROM tombstones)"
    ),
    "removed passages without their text": (
        "SELECT count(*) FROM passages WHERE document IS NULL AND coalesce(removed, 0) NOT IN "
        "(SELECT id FROM removed_texts)"
    ),
    "texts of no removed passage": (
        "SELECT count(*) FROM removed_texts WHERE id NOT IN (SELECT removed FROM passages WHERE removed IS NOT NULL)"
    ),
    "postings of no segment": "SELECT count(*) FROM postings WHERE segment NOT IN (SELECT id FROM segments)",
    "merges without sources": (
        "SELECT count(*) FROM segments WHERE ready = 0 AND target IS NULL AND id NOT IN "
        "(SELECT target FROM segments WHERE target IS NOT NULL)"
    ),
    "vectors of no passage": "SELECT count(*) FROM vectors WHERE passage NOT IN (SELECT id FROM passages)",
    "passages passed over": (
        "SELECT count(*) FROM passages, spaces WHERE document IS NOT NULL AND passages.id <= through "
        "AND passages.id NOT IN (SELECT passage FROM vectors)"
    ),
    "numbers ahead of the counter": (
        "SELECT count(*) FROM passages WHERE id > (SELECT value FROM counters WHERE name = 'passage')"
    ),
    "citations of no document": "SELECT count(*) FROM citations WHERE source NOT IN (SELECT id FROM documents)",
}

Instance = tuple[str, int, int, int]
"""A word, its passage, its column and its position."""


def assert_agrees(storage: AnyStorage) -> None:
    with storage.database.writing() as connection:
        if isinstance(storage, SqliteStorage):
            assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        disagreements = {what: connection.execute(sql).fetchone()[0] for what, sql in AGREEMENT.items()}
    assert not any(disagreements.values()), disagreements
    assert_index_agrees(storage)


def stored_texts(storage: AnyStorage) -> list[PassageTexts]:
    """Of all passages that were not removed."""
    with storage.database.reading() as connection:
        return _texts(connection)


def assert_index_agrees(storage: AnyStorage) -> None:
    """Every word of the passages is in the index, and no other word of theirs; their lengths are true."""
    with storage.database.reading() as connection:
        texts = _texts(connection)
        expected, lengths = index(texts)
        rows = connection.execute("SELECT id, length FROM passages WHERE document IS NOT NULL").fetchall()
        assert dict(rows) == lengths
        found: list[Instance] = []
        for data, positions in connection.execute(
            "SELECT data, positions FROM postings JOIN segments ON segments.id = segment WHERE ready = 1"
        ):
            found += instances(unpack(data, positions))
    assert sorted(each for each in found if each[1] in lengths) == instances(expected)


def instances(indexed: Postings) -> list[Instance]:
    """All occurrences."""
    found = []
    for word in indexed.words:
        for each in indexed.find(word):
            numbers = np.repeat(each.passages, each.counts).tolist()
            found += [
                (word, number, each.column, place)
                for number, place in zip(numbers, each.positions.tolist(), strict=True)
            ]
    return sorted(found)


def _texts(connection: Connection) -> list[PassageTexts]:
    rows = connection.execute(
        f"SELECT id, heading, {PLACED} FROM passages WHERE document IS NOT NULL ORDER BY id"
    ).fetchall()
    reader = Texts(connection)
    found = []
    for number, heading, *placed in rows:
        title, text = reader.of(*placed)
        found.append(PassageTexts(number, title, heading, text, identifier_parts(title, heading, text)))
    return found
