"""Search by words and meaning as one ranking, and what is left of it when one of them is not to be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.archive.embedding.passage_vectors import embed_passages as embed
from pointsman.archive.embedding.remote import RemoteEmbedding
from pointsman.archive.embedding.settings import Endpoint
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.search.circuit_breaker import COOLDOWN_S
from pointsman.archive.search.fusion import fuse, normalize
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import LITTLE, LOW_SCORE, NO_WORD, NOTHING, Answer, Searcher, Source
from tests.archive.embedding.server import embedding_server
from tests.archive.engines import ENGINES, AnyStorage, Place, new_store
from tests.archive.sample_documents import fill, prepared

DOCUMENTS = (
    prepared("cars.md", "How to repair the engine of an automobile", "Changing tires on a vehicle", tags=("travel",)),
    prepared("cooking.md", "Bake the bread in a hot oven", "Slice the tomatoes and add salt", tags=("food",)),
    prepared("soup.md", "Simmer vegetables for a tasty broth", tags=("food",)),
    prepared("space.md", "Rockets carry satellites into orbit"),
)


@pytest.fixture(scope="module", params=ENGINES)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyStorage]:
    storage = new_store(request, tmp_path_factory.mktemp("store"), request.param).open()
    fill(storage, *DOCUMENTS)
    fill(storage, prepared("other.md", "Baking cakes and bread"), collection="other")
    embed(storage, StaticEmbedding())
    yield storage
    storage.close()


@pytest.fixture(scope="module")
def searcher(filled: AnyStorage) -> Searcher:
    return Searcher(filled, StaticEmbedding())


def documents(answer: Answer) -> list[str]:
    return [found.passage.document for found in answer.found]


def test_meaning_finds_what_words_do_not(searcher: Searcher) -> None:
    assert documents(searcher.search(parse("car maintenance"), 2)) == ["cars.md", "cars.md"]


def test_words_outweigh_a_weak_model(searcher: Searcher) -> None:
    answer = searcher.search(parse("tomatoes"), 3)
    assert documents(answer)[0] == "cooking.md"
    assert answer.found[0].relevance > answer.found[1].relevance
    assert all(0 <= found.relevance <= 1 and 0 <= found.distance <= 2 for found in answer.found)


def test_exclusions_and_filters_hold_for_meaning_too(searcher: Searcher) -> None:
    assert "cars.md" not in documents(searcher.search(parse("car maintenance -engine -vehicle"), 10))
    assert set(documents(searcher.search(parse("car maintenance tag:food"), 10))) == {"cooking.md", "soup.md"}
    assert documents(searcher.search(parse('"hot oven" car maintenance'), 10)) == ["cooking.md"]
    assert documents(searcher.search(parse("dinner collection:other"), 10)) == ["other.md"]


def test_a_greatest_distance_leaves_what_is_nearer(searcher: Searcher) -> None:
    every = searcher.search(parse("car maintenance"), 10).found
    limit = sorted(found.distance for found in every)[2]
    near = searcher.search(parse("car maintenance"), 10, max_distance=limit).found
    assert len(near) == 3
    assert max(found.distance for found in near) <= limit
    assert searcher.search(parse("car maintenance"), 10, max_distance=0.0).found == ()


def test_by_meaning_alone_the_score_is_the_likeness(searcher: Searcher) -> None:
    answer = searcher.search(parse("bread"), 3, by_words=False)
    for found in answer.found:
        assert found.relevance == pytest.approx(max(0.0, 1 - found.distance), abs=1e-6)


@pytest.mark.parametrize("query", ["flurble xyzzy quux", "blorptastic snargle", "asdf jkl qwertz"])
def test_nonsense_gets_a_low_score_and_a_notice(searcher: Searcher, query: str) -> None:
    answer = searcher.search(parse(query), 3)
    assert answer.found[0].relevance < LOW_SCORE
    assert answer.notices == (NO_WORD,)


def test_a_query_without_spaces_may_share_a_part_of_its_one_word(tmp_path: Path) -> None:
    storage = Place(tmp_path / "archive.db").open()
    fill(storage, prepared("meeting.md", "\u4f1a\u8b70\u306f\u5341\u6642\u306b\u59cb\u307e\u308b"), *DOCUMENTS)
    embed(storage, StaticEmbedding())
    answer = Searcher(storage, StaticEmbedding()).search(parse("\u4f1a\u8b70\u306f\u4f55\u6642"), 3)
    assert NO_WORD not in answer.notices
    storage.close()


def test_a_word_in_common_does_not_make_an_answer(searcher: Searcher) -> None:
    answer = searcher.search(parse("salt mine accident statistics of Poland"), 3)
    assert answer.found[0].relevance < LOW_SCORE
    assert answer.notices == (LITTLE,)
    assert searcher.search(parse("slice tomatoes"), 3).notices == ()


def test_an_empty_answer_says_so(searcher: Searcher, filled: AnyStorage) -> None:
    assert searcher.search(parse("+flurble bread"), 3) == Answer(notices=(NOTHING,))
    assert Searcher(filled, None).search(parse("flurble"), 3) == Answer(notices=(NOTHING,))


def test_function_words_do_not_rank(place: Place) -> None:
    storage = place.open()
    fill(storage, prepared("a.md", "what is it that we do with the"), prepared("b.md", "bake bread"))
    fill(storage, *(prepared(f"{number}.md", "numbers only") for number in range(20)))
    searcher = Searcher(storage, None)
    assert documents(searcher.search(parse("what do we do with the bread"), 5)) == ["b.md"]
    assert documents(searcher.search(parse("what is it"), 5)) == ["a.md"]
    storage.close()


def test_a_title_counts_beside_a_long_text(place: Place) -> None:
    storage = place.open()
    text = "The committee met on Monday and approved the budget, the schedule and the list of members. " * 10
    fill(storage, prepared("a.md", text, title="Bread recipes"), prepared("b.md", text, title="Rocket engines"))
    fill(storage, prepared("c.md", "A dough of flour, water and yeast is baked in a hot oven.", title="Kitchen"))
    embed(storage, StaticEmbedding())
    answer = Searcher(storage, StaticEmbedding()).search(parse("spacecraft propulsion"), 3, by_words=False)
    assert documents(answer)[0] == "b.md"
    assert answer.found[0].relevance > answer.found[1].relevance + 0.05
    storage.close()


def test_a_title_that_is_a_number_does_not_blur_its_text(place: Place) -> None:
    storage = place.open()
    fill(storage, prepared("a.md", "The dough is baked in an oven.", title="DEC-0054"))
    fill(storage, prepared("b.md", "The dough is baked in an oven.", title="2026-01-31"))
    embed(storage, StaticEmbedding())
    found = Searcher(storage, StaticEmbedding()).search(parse("the dough is baked in an oven"), 2, by_words=False).found
    assert [hit.distance < 0.01 for hit in found] == [True, True]
    storage.close()


def test_without_vectors_words_answer_and_the_answer_says_so(filled: AnyStorage, place: Place) -> None:
    by_words = Searcher(filled, None)
    answer = by_words.search(parse("bread"), 5, by_words=False, max_distance=0.1)
    assert set(documents(answer)) == {"cooking.md", "other.md"}
    assert {found.distance for found in answer.found} == {1.0}
    assert "searched by words" in answer.notices[0]
    assert "`maxDistance` was ignored" in answer.notices[1]
    assert by_words.search(parse("bread"), 5).notices == ()
    empty = place.open()
    fill(empty, prepared("a.md", "bread"))
    answer = Searcher(empty, StaticEmbedding()).search(parse("bread"), 5)
    empty.close()
    assert documents(answer) == ["a.md"]
    assert "no vectors yet" in answer.notices[0]


def test_a_provider_that_fails_or_is_another_leaves_words_and_a_notice(filled: AnyStorage) -> None:
    with embedding_server() as server:
        other = RemoteEmbedding(Endpoint(server.url, "small", dimensions=8))
        answer = Searcher(filled, other).search(parse("bread"), 5)
        assert "embed --again" in answer.notices[0]
        assert set(documents(answer)) == {"cooking.md", "other.md"}
        server.refusals = [401]
        answer = Searcher(filled, RemoteEmbedding(Endpoint(server.url, "small"))).search(parse("bread"), 5)
        assert "rejected the key" in answer.notices[0]
        assert set(documents(answer)) == {"cooking.md", "other.md"}


def test_a_provider_that_did_not_answer_is_left_alone_for_a_while(place: Place) -> None:
    storage = place.open()
    fill(storage, *DOCUMENTS)
    now = 0.0
    with embedding_server() as server:
        embed(storage, RemoteEmbedding(Endpoint(server.url, "small")))
        searcher = Searcher(storage, RemoteEmbedding(Endpoint(server.url, "small")), clock=lambda: now)
        server.refusals = [401]
        assert "rejected the key" in searcher.search(parse("bread"), 5).notices[0]
        asked = len(server.keys)
        assert "rejected the key" in searcher.search(parse("bread"), 5).notices[0]
        assert len(server.keys) == asked
        now = COOLDOWN_S
        assert searcher.search(parse("bread"), 5).notices == ()
    storage.close()


def test_related_passages_are_of_the_same_collection_and_not_the_document_itself(searcher: Searcher) -> None:
    answer = searcher.related(Source("notes", "cooking.md"), 10, same_document=False)
    assert documents(answer)[0] == "soup.md"
    assert set(documents(answer)) == {"soup.md", "cars.md", "space.md"}
    with_itself = searcher.related(Source("notes", "cooking.md"), 10, same_document=True)
    assert documents(with_itself)[0] == "cooking.md"
    by_text = searcher.related(Source("notes", "cooking.md", "launching a rocket"), 1, same_document=False)
    assert documents(by_text) == ["space.md"]


def test_related_passages_without_vectors_have_words_in_common(place: Place) -> None:
    storage = place.open()
    fill(
        storage,
        prepared("a.md", "x", title="Bread and butter"),
        prepared("b.md", "we eat bread"),
        prepared("c.md", "nothing"),
    )
    answer = Searcher(storage, None).related(Source("notes", "a.md"), 5, same_document=False)
    storage.close()
    assert documents(answer) == ["b.md"]
    assert "words in common" in answer.notices[-1]


def test_fusing_stretches_both_sides_and_weighs_them() -> None:
    assert fuse({1: 30.0, 2: 10.0, 3: 20.0}, {2: 0.9, 4: 0.5}, 0.3) == {1: 0.7, 3: 0.35, 2: 0.3, 4: 0.0}
    assert fuse({}, {7: 0.2}, 0.3) == {7: 0.3}
    assert normalize({1: 2.0, 2: 4.0}) == {2: 1.0, 1: 0.5}
