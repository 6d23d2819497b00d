"""A full disk, another writer, huge documents: a clear error and an intact store, or an answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.archive.search.query_parser import parse
from pointsman.archive.store.errors import StoreError, StoreFullError, StoreLockedError
from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared
from tests.archive.store.agreement import assert_index_agrees

PROJECT = Path(__file__).parents[3]
MEGABYTE = 1_048_576


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "archive.db")
    fill(storage, prepared("a.md", "one"))
    with storage.database.writing() as connection:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size instead
    with pytest.raises(StoreFullError, match="no room left"):
        storage.documents.put_documents("notes", [prepared("b.md", *(f"{n} " * 400 for n in range(200)))])
    assert storage.documents.list_documents("notes", 10).total == 1
    assert storage.passages.search(parse("one"), 10, enough=10)
    storage.close()
    again = SqliteStorage(tmp_path / "archive.db")
    fill(again, prepared("b.md", "two"))
    assert again.documents.list_documents("notes", 10).total == 2
    again.close()


LIMITED = """
import resource, signal, sys
from pathlib import Path
from pointsman.archive.store.errors import StoreError
from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.store.agreement import assert_index_agrees
from tests.archive.sample_documents import fill, prepared

storage = SqliteStorage(Path(sys.argv[1]))
fill(storage, prepared("a.md", "one"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    storage.documents.put_documents("notes", [prepared("b.md", *(f"{n} word" * 300 for n in range(2_000)))])
except StoreError as error:
    print(type(error).__name__, error)
print(storage.documents.list_documents("notes", 10).total)
"""


def test_a_quota_that_is_reached_in_the_middle_of_a_write_is_told_and_harms_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "archive.db")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told, total = done.stdout.splitlines()
    assert told.startswith(("StoreFull", "StoreUnusable"))
    assert "archive.db" in told
    assert str(tmp_path) not in told
    assert total == "1"
    storage = SqliteStorage(tmp_path / "archive.db")
    with storage.database.writing() as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert_index_agrees(storage)
    fill(storage, prepared("b.md", "two"))
    storage.close()


def test_while_another_process_writes_reading_goes_on_and_writing_says_why_not(tmp_path: Path) -> None:
    one = SqliteStorage(tmp_path / "archive.db", busy_s=0.01)
    fill(one, prepared("a.md", "one"))
    other = SqliteStorage(tmp_path / "archive.db", busy_s=0.01)
    with other.database.writing():
        assert one.passages.search(parse("one"), 10, enough=10)
        assert one.documents.document("notes", "a.md") is not None
        with pytest.raises(StoreLockedError, match="being written by another process"):
            one.documents.put_documents("notes", [prepared("b.md", "two")])
    fill(one, prepared("b.md", "two"))
    assert one.documents.list_documents("notes", 10).total == 2
    one.close()
    other.close()


def test_a_document_of_ten_megabytes_is_kept_and_found(storage: AnyStorage) -> None:
    passages = [f"passage {number} " + "filler words of no interest " * 45 for number in range(8_500)]
    big = prepared("big.md", *passages, "the needle")
    assert len(big.document.content) > 10 * MEGABYTE
    fill(storage, big)
    kept = storage.documents.document("notes", "big.md")
    assert kept is not None
    assert kept.content == big.document.content
    (hit,) = storage.passages.search(parse("needle"), 10, enough=1)
    assert storage.passages.passages([hit.number])[hit.number].place == 8_501


def test_half_a_character_is_refused_by_the_name_of_its_document(storage: AnyStorage) -> None:
    with pytest.raises(StoreError, match=r'"b\.md"'):
        fill(storage, prepared("a.md", "fine"), prepared("b.md", "broken \ud800"))
    assert storage.documents.list_documents("notes", 10).total == 0
