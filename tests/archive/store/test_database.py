"""The SQLite file: transactions, readers during a write, and errors when it cannot be used."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from pointsman.archive.store.errors import StoreFullError, StoreLockedError, StoreUnusableError
from pointsman.archive.store.sqlite.database import SqliteDatabase

NOTES = (("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT);\n",),)


def notes(database: SqliteDatabase) -> list[str]:
    with database.reading() as connection:
        return [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY id")]


def note(database: SqliteDatabase, text: str) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO notes (text) VALUES (?)", (text,))


def note_all(database: SqliteDatabase, texts: Iterable[object]) -> None:
    with database.writing() as connection:
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(text)
            connection.execute("INSERT INTO notes (text) VALUES (?)", (text,))


def test_what_is_written_is_read_and_an_exception_takes_all_of_it_back(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "new" / "store.db", NOTES)
    note(database, "one")
    with pytest.raises(TypeError):
        note_all(database, ["two", object()])
    assert notes(database) == ["one"]
    database.close()
    assert notes(SqliteDatabase(tmp_path / "new" / "store.db", NOTES)) == ["one"]


def test_readers_do_not_wait_for_a_writer_and_see_what_was_there_before(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "store.db", NOTES, busy_s=0)
    note(database, "one")
    with database.writing() as connection:
        connection.execute("INSERT INTO notes (text) VALUES ('two')")
        seen: list[list[str]] = []
        reader = threading.Thread(target=lambda: seen.append(notes(database)))
        reader.start()
        reader.join(30)
        assert seen == [["one"]]
    assert notes(database) == ["one", "two"]


def test_a_store_is_opened_and_read_while_another_process_writes(tmp_path: Path) -> None:
    writer = SqliteDatabase(tmp_path / "store.db", NOTES, busy_s=0)
    note(writer, "one")
    with writer.writing():
        assert notes(SqliteDatabase(tmp_path / "store.db", NOTES, busy_s=0)) == ["one"]


def test_a_file_that_another_process_writes_is_named_as_busy(tmp_path: Path) -> None:
    one, other = (SqliteDatabase(tmp_path / "store.db", NOTES, busy_s=0.01) for _ in range(2))
    with one.writing(), pytest.raises(StoreLockedError, match=r"store\.db is being written by another process"):
        note(other, "two")
    note(other, "two")


def test_no_room_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "store.db", NOTES)
    note(database, "one")
    with database.writing() as connection:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size instead
    with pytest.raises(StoreFullError, match="no room left"):
        note_all(database, ["x" * 5000] * 100)
    assert notes(database) == ["one"]


def test_a_store_that_is_removed_while_it_is_open_is_made_anew(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "store.db", NOTES)
    note(database, "one")
    for file in tmp_path.iterdir():
        file.unlink()
    assert notes(database) == []
    note(database, "two")
    assert notes(SqliteDatabase(tmp_path / "store.db", NOTES)) == ["two"]


def test_versions_are_taken_one_after_another_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    note(SqliteDatabase(tmp_path / "store.db", NOTES), "one")
    later = (*NOTES, ("ALTER TABLE notes ADD COLUMN mood TEXT DEFAULT 'calm';\n",))
    with SqliteDatabase(tmp_path / "store.db", later).reading() as connection:
        assert connection.execute("SELECT text, mood FROM notes").fetchall() == [("one", "calm")]
    with pytest.raises(StoreUnusableError, match="newer Pointsman"):
        SqliteDatabase(tmp_path / "store.db", NOTES)


def test_other_files_are_not_touched(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE theirs (id)")
    foreign.commit()
    foreign.close()
    with pytest.raises(StoreUnusableError, match="not an archive of Pointsman's"):
        SqliteDatabase(tmp_path / "foreign.db", NOTES)
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like one" * 50)
    with pytest.raises(StoreUnusableError, match="damaged or not a database"):
        SqliteDatabase(tmp_path / "text.db", NOTES)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreUnusableError, match=r"folder\.db cannot be used"):
        SqliteDatabase(tmp_path / "folder.db", NOTES)


def test_many_that_make_the_same_new_store_at_once_all_have_it(tmp_path: Path) -> None:
    path, together = tmp_path / "store.db", threading.Barrier(8)
    failures: list[Exception] = []

    def make() -> None:
        together.wait(60)
        try:
            note(SqliteDatabase(path, NOTES, busy_s=60), "mine")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert notes(SqliteDatabase(path, NOTES)) == ["mine"] * 8
