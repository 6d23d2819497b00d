"""A file of the first version is upgraded when it is opened, and answers as before.

`first_version/archive.db.gz` was written by the last release with that version: it has passages that were removed but
not cleaned up, passages that the vocabulary had not counted, line ends of Windows, and a document of several blocks.
`expected.json` is what that release answered.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pointsman.archive.search.query_parser import parse
from pointsman.archive.store.errors import StoreError
from pointsman.archive.store.sqlite import first_version
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.archive.text.words import words_of
from tests.archive.sample_documents import prepared
from tests.archive.store.agreement import assert_index_agrees, stored_texts

FOLDER = Path(__file__).with_name("first_version")
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text("utf-8"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "archive.db"
    path.write_bytes(gzip.decompress((FOLDER / "archive.db.gz").read_bytes()))
    return path


def schema(path: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return set(rows)


def test_an_old_file_answers_as_before(old: Path) -> None:
    storage = SqliteStorage(old)
    assert_index_agrees(storage)
    for text, hits in EXPECTED["searches"].items():
        found = storage.passages.search(parse(text), 50, enough=10)
        assert [[hit.number, pytest.approx(hit.score, abs=1e-4)] for hit in found] == hits, text
    for name, chunks in EXPECTED["chunks"].items():
        collection, _, id_ = name.partition("/")
        read = [
            [each.text, each.heading, each.start_line, each.end_line]
            for each in storage.documents.chunks_of(collection, id_)
        ]
        assert (len(read) if isinstance(chunks, int) else read) == chunks
    for name, content in EXPECTED["contents"].items():
        document = storage.documents.document(*name.split("/"))
        assert document is not None
        assert document.content == content
    vectors = storage.vectors.changes(None).added
    assert [[each.number, each.document, each.vector.hex()] for each in vectors] == EXPECTED["vectors"]
    stats = storage.documents.stats().collections
    assert [[each.name, each.documents, each.chunks] for each in stats] == EXPECTED["stats"]
    storage.close()


def test_the_vocabulary_of_an_old_file_is_counted_on(old: Path) -> None:
    storage = SqliteStorage(old)
    storage.housekeeper.tidy()
    expected = Counter(word for each in stored_texts(storage) for word in words_of(each.title, each.heading, each.text))
    with storage.database.reading() as connection:
        assert dict(connection.execute("SELECT word, passages FROM vocabulary WHERE passages > 0")) == expected
        assert connection.execute("SELECT count(*) FROM passages WHERE document IS NULL").fetchone() == (0,)
    storage.close()


def test_an_upgraded_file_has_the_tables_of_a_new_one_and_can_be_written(old: Path, tmp_path: Path) -> None:
    before = old.stat().st_size
    storage = SqliteStorage(old)
    storage.documents.put_documents("notes", [prepared("a.md", "a new walrus")])
    storage.documents.remove_documents("notes", ["tides.md"])
    storage.housekeeper.tidy()
    assert_index_agrees(storage)
    storage.close()
    SqliteStorage(tmp_path / "new.db").close()
    assert schema(old) == schema(tmp_path / "new.db")
    assert old.stat().st_size < before


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema(old)

    def failing(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(first_version, "locate", failing)
        with pytest.raises(StoreError):
            SqliteStorage(old)
    assert schema(old) == before
    storage = SqliteStorage(old)
    assert_index_agrees(storage)
    storage.close()
