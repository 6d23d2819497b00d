"""The vocabulary of the store: counted in the background, correct after every change and restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pointsman.archive.store.sqlite import vocabulary
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.archive.text.words import words_of
from tests.archive.sample_documents import fill, prepared


def counted(storage: SqliteStorage) -> dict[str, int]:
    with storage.database.reading() as connection:
        return dict(connection.execute("SELECT word, passages FROM vocabulary WHERE passages > 0"))


def true(storage: SqliteStorage) -> dict[str, int]:
    with storage.database.reading() as connection:
        rows = connection.execute("SELECT title, heading, text FROM passages WHERE document IS NOT NULL").fetchall()
    return Counter(word for row in rows for word in words_of(*row))


def guesses(storage: SqliteStorage, word: str) -> list[str]:
    with storage.archives.reading() as view:
        return [guess.word for guess in view.vocabulary().nearest(word)]


def test_counts_are_true_after_documents_came_changed_and_went(storage: SqliteStorage) -> None:
    fill(storage, prepared("a.md", "alpha beta gamma", "gamma delta"), prepared("b.md", "delta epsilon"))
    storage.housekeeper.tidy()
    assert counted(storage) == true(storage)
    assert counted(storage)["gamma"] == 2
    fill(storage, prepared("a.md", "alpha beta gamma", "zeta theta"))
    storage.documents.remove_documents("notes", ["b.md"])
    fill(storage, prepared("c.md", "iota kappa"))
    storage.housekeeper.tidy()
    assert counted(storage) == true(storage)
    assert "epsilon" not in counted(storage)


def test_counting_in_many_steps_counts_each_passage_once(storage: SqliteStorage) -> None:
    texts = [f"common word{'abcdefghij'[n % 10]}s" for n in range(2 * vocabulary.PASSAGES_PER_STEP + 7)]
    fill(storage, prepared("a.md", *texts))
    storage.housekeeper.tidy()
    assert counted(storage)["common"] == len(texts)
    assert counted(storage) == true(storage)


def test_a_passage_that_goes_before_it_is_counted_is_never_counted(storage: SqliteStorage) -> None:
    fill(storage, prepared("a.md", "shortlived sentence"))
    storage.documents.remove_documents("notes", ["a.md"])
    storage.housekeeper.tidy()
    assert counted(storage) == {}


def test_a_search_knows_words_that_are_not_counted_yet(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "archive.db")
    storage.housekeeper.close()  # nobody counts
    fill(storage, prepared("a.md", "photosynthesis happens"))
    assert guesses(storage, "photosinthesis") == ["photosynthesis"]
    fill(storage, prepared("b.md", "mitochondria too"))
    assert guesses(storage, "mitochndria") == ["mitochondria"]
    assert counted(storage) == {}
    storage.close()


def test_the_vocabulary_in_memory_follows_what_comes_and_goes(storage: SqliteStorage) -> None:
    fill(storage, prepared("a.md", "photosynthesis happens"))
    storage.housekeeper.tidy()
    assert guesses(storage, "photosinthesis") == ["photosynthesis"]
    storage.documents.remove_documents("notes", ["a.md"])
    fill(storage, prepared("b.md", "mitochondria too"))
    storage.housekeeper.tidy()
    assert guesses(storage, "photosinthesis") == []
    assert guesses(storage, "mitochndria") == ["mitochondria"]


def test_another_file_in_the_place_of_the_store_begins_anew(storage: SqliteStorage, tmp_path: Path) -> None:
    fill(storage, prepared("a.md", "photosynthesis happens"))
    assert guesses(storage, "photosinthesis") == ["photosynthesis"]
    other = SqliteStorage(tmp_path / "other.db")
    fill(other, prepared("b.md", "mitochondria too"))
    other.close()
    for leftover in ("archive.db-wal", "archive.db-shm"):
        (tmp_path / leftover).unlink(missing_ok=True)
    (tmp_path / "other.db").replace(tmp_path / "archive.db")
    assert guesses(storage, "photosinthesis") == []
    assert guesses(storage, "mitochndria") == ["mitochondria"]


def test_a_step_that_is_cut_short_counts_nothing_and_is_made_up_for(storage: SqliteStorage) -> None:
    fill(storage, prepared("a.md", "photosynthesis happens"))
    storage.housekeeper.tidy()
    fill(storage, prepared("b.md", "photosynthesis again"))
    storage.documents.remove_documents("notes", ["a.md"])

    def cut_short() -> None:
        with storage.database.writing() as connection:
            assert vocabulary.count(connection)
            raise RuntimeError("the end")

    with pytest.raises(RuntimeError, match="the end"):
        cut_short()
    storage.housekeeper.tidy()
    assert counted(storage) == true(storage)
