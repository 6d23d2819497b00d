"""A writer that is killed at any moment leaves a consistent store."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.sample_documents import fill, prepared

PROJECT = Path(__file__).parents[3]
DEATHS = 6
LONGEST_LIFE_S = 0.4

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
        "GROUP BY document, place HAVING count(*) > 1)"
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
    "words of no passage": "SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT id FROM passages)",
    "passages without words": "SELECT count(*) FROM passages WHERE id NOT IN (SELECT id FROM words_docsize)",
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


def test_a_store_agrees_with_itself_after_its_writer_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "archive.db"
    chance = random.Random(11)
    for turn in range(DEATHS):
        _write_and_die(path, turn, chance.uniform(0, LONGEST_LIFE_S))
        storage = SqliteStorage(path)
        _check(storage)
        storage.housekeeper.tidy()
        _check(storage)
        fill(storage, prepared("after.md", "still writable"))
        storage.close()


def _write_and_die(path: Path, seed: int, life_s: float) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.archive.store.writer", str(path), str(seed)], cwd=PROJECT, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    threading.Event().wait(life_s)  # the moment is the point
    assert writer.poll() is None
    writer.kill()
    writer.wait()
    writer.stdout.close()


def _check(storage: SqliteStorage) -> None:
    with storage.database.writing() as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        disagreements = {what: connection.execute(sql).fetchone()[0] for what, sql in AGREEMENT.items()}
    assert not any(disagreements.values()), disagreements
