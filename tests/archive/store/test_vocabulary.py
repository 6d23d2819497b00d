"""The vocabulary of the store: counted in the background, correct after every change and restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pointsman.archive.store.sql import vocabulary
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sql.housekeeper import _delete_removed
from pointsman.archive.text.words import words_of
from tests.archive.engines import AnyStorage, Place, new_store
from tests.archive.sample_documents import fill, prepared
from tests.archive.store.agreement import stored_texts


def counted(storage: AnyStorage) -> dict[str, int]:
    with storage.database.reading() as connection:
        return dict(connection.execute("SELECT word, passages FROM vocabulary WHERE passages > 0"))


def true(storage: AnyStorage) -> dict[str, int]:
    return Counter(word for each in stored_texts(storage) for word in words_of(each.title, each.heading, each.text))


def guesses(storage: AnyStorage, word: str) -> list[str]:
    with storage.archives.reading() as view:
        return [guess.word for guess in view.vocabulary().nearest(word)]


def test_counts_are_true_after_documents_came_changed_and_went(storage: AnyStorage) -> None:
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


def test_counting_in_many_steps_counts_each_passage_once(storage: AnyStorage) -> None:
    texts = [f"common word{'abcdefghij'[n % 10]}s" for n in range(2 * vocabulary.PASSAGES_PER_STEP + 7)]
    fill(storage, prepared("a.md", *texts))
    storage.housekeeper.tidy()
    assert counted(storage)["common"] == len(texts)
    assert counted(storage) == true(storage)


def test_a_passage_that_goes_before_it_is_counted_is_never_counted(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "shortlived sentence"))
    storage.documents.remove_documents("notes", ["a.md"])
    storage.housekeeper.tidy()
    assert counted(storage) == {}


def test_a_search_knows_words_that_are_not_counted_yet(place: Place) -> None:
    storage = place.open()
    storage.housekeeper.close()  # nobody counts
    fill(storage, prepared("a.md", "photosynthesis happens"))
    assert guesses(storage, "photosinthesis") == ["photosynthesis"]
    fill(storage, prepared("b.md", "mitochondria too"))
    assert guesses(storage, "mitochndria") == ["mitochondria"]
    assert counted(storage) == {}
    storage.close()


def test_a_word_that_a_changed_document_keeps_is_known_all_the_time(place: Place) -> None:
    """The old passage is discounted one step before the new one is counted, which a search has read ahead."""
    storage = place.open()
    storage.housekeeper.close()
    fill(storage, prepared("a.md", "photosynthesis happens"))
    step(storage, vocabulary.count)
    fill(storage, prepared("a.md", "photosynthesis again"))
    known = [passages_of(storage, "photosynthesis")]
    for work in (_delete_removed, vocabulary.count):
        step(storage, work)
        known.append(passages_of(storage, "photosynthesis"))
    assert known == [2, 1, 1]  # the removed passage counts until it is deleted
    storage.close()


def step(storage: AnyStorage, work: Callable[[Connection], bool]) -> None:
    with storage.database.writing() as connection:
        assert work(connection)


def passages_of(storage: AnyStorage, word: str) -> int:
    with storage.archives.reading() as view:
        return view.vocabulary().passages(word)


def test_the_vocabulary_in_memory_follows_what_comes_and_goes(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "photosynthesis happens"))
    storage.housekeeper.tidy()
    assert guesses(storage, "photosinthesis") == ["photosynthesis"]
    storage.documents.remove_documents("notes", ["a.md"])
    fill(storage, prepared("b.md", "mitochondria too"))
    storage.housekeeper.tidy()
    assert guesses(storage, "photosinthesis") == []
    assert guesses(storage, "mitochndria") == ["mitochondria"]


def test_another_database_in_the_place_of_the_store_begins_anew(
    request: pytest.FixtureRequest, storage: AnyStorage, place: Place, tmp_path: Path
) -> None:
    fill(storage, prepared("a.md", "photosynthesis happens"))
    assert guesses(storage, "photosinthesis") == ["photosynthesis"]
    second = new_store(request, tmp_path / "second", place.engine)
    other = second.open()
    fill(other, prepared("b.md", "mitochondria too"))
    other.close()
    storage.housekeeper.tidy()  # else it may be in the middle of a step, whose mark would then be set in the other one
    place.replace_by(second)
    assert guesses(storage, "photosinthesis") == []
    assert guesses(storage, "mitochndria") == ["mitochondria"]


def test_a_step_that_is_cut_short_counts_nothing_and_is_made_up_for(storage: AnyStorage) -> None:
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
