"""Both engines give the same answers, and a store can be copied from one into the other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.context import Access, ContextItem, ItemFilter
from pointsman.archive.model.documents import Citation, FileState, PreparedDocument
from pointsman.archive.model.indexes import Entry, Tokenizer
from pointsman.archive.model.query import Query
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import Searcher
from pointsman.archive.store.base import VectorFilter
from pointsman.archive.store.copying import copy_storage
from tests.archive.engines import ENGINES, AnyStorage, new_store
from tests.archive.sample_documents import fill, prepared

WORDS = ["alpha", "beta", "gamma", "running", "runner", "café", "Straße", "getUserName", "max_size", "utf-8"]
WORDS += ["high-speed", "日本語", "naïve", "DEC-0054", "x"]
TITLES = ("The walrus", "getUserName explained", "high-speed trains", "Über Straßen")


def documents(count: int, seed: int = 5) -> list[PreparedDocument]:
    chance = random.Random(seed)
    made = []
    for number in range(count):
        texts = [" ".join(chance.choices(WORDS, k=chance.randint(3, 60))) for _ in range(chance.randint(1, 4))]
        each = prepared(
            f"{number}.md",
            *texts,
            title=chance.choice(TITLES),
            heading=chance.choice((None, "gamma heading")),
            tags=("Even",) if number % 2 == 0 else ("odd", "café"),
            date=f"2024-01-{number % 28 + 1:02}",
            metadata={"number": number},
            origin=FileState(f"/notes/{number}.md", number, 17, "ab" * 32),
        )
        cited = Citation("inline", f"{(number + 1) % count}.md", "see there", 0.9, 3)
        made.append(replace(each, citations=(cited,)))
    return made


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AnyStorage]]:
    """The same documents in both; some replaced and removed, before and after segments were merged."""
    storages = []
    for engine in ENGINES:
        storage = new_store(request, tmp_path_factory.mktemp(engine), engine).open()
        for start in range(0, 120, 10):
            fill(storage, *documents(120)[start : start + 10])
        storage.housekeeper.tidy()
        fill(storage, *documents(20, seed=6))
        fill(storage, *documents(10, seed=7), collection="other", alias="o")
        storage.documents.remove_documents("notes", ["7.md", "50.md"])
        embed_passages(storage, StaticEmbedding())
        storages.append(storage)
    yield storages
    for storage in storages:
        storage.close()


QUERIES = (
    "alpha",
    "running high-speed",
    "alpha beta gamma café naïve",
    '"beta gamma" alpha',
    "+runner -alpha café",
    "getUserName user",
    "DEC-0054 utf-8 max_size",
    "日本語",
    "alpha tag:even",
    "alpha -tag:EVEN after:2024-01-10",
    "runs collection:o",
    "heading strasse",
    "missing alpha alpha beta",
)


@pytest.mark.parametrize("text", QUERIES)
def test_scores_are_equal(both: list[AnyStorage], text: str) -> None:
    query = parse(text)
    first, second = ([*each.passages.search(query, 50, enough=20)] for each in both)
    assert first
    assert [hit.number for hit in first] == [hit.number for hit in second]
    assert [hit.score for hit in first] == pytest.approx([hit.score for hit in second], rel=1e-12)
    sqlite, postgres = both
    assert sqlite.passages.with_identifiers(query) == postgres.passages.with_identifiers(query)
    assert sqlite.passages.weights(query.words) == postgres.passages.weights(query.words)
    assert sqlite.passages.required_and_excluded(query) == postgres.passages.required_and_excluded(query)
    assert sqlite.passages.scope(query.filters) == postgres.passages.scope(query.filters)
    numbers = [hit.number for hit in first]
    assert sqlite.passages.passages(numbers) == postgres.passages.passages(numbers)


@pytest.mark.parametrize("text", QUERIES)
def test_hybrid_answers_are_equal(both: list[AnyStorage], text: str) -> None:
    first, second = (Searcher(each, StaticEmbedding()).search(parse(text), 10) for each in both)
    assert [each.passage for each in first.found] == [each.passage for each in second.found]
    assert [each.relevance for each in first.found] == pytest.approx(
        [each.relevance for each in second.found], abs=2e-3
    )
    assert first.notices == second.notices


def test_whole_documents_are_matched_described_and_highlighted_alike(both: list[AnyStorage]) -> None:
    answers = []
    for storage in both:
        with storage.archives.reading() as view:
            found = view.postings("running")
            numbers = sorted(set(found.documents.tolist()))
            answers.append(
                (
                    found.passages.tolist(),
                    found.titles.tolist(),
                    view.documents_with_all([["alpha"], ["beta", "gamma"]]).tolist(),
                    view.describe(numbers[:20]),
                    view.newest(parse("").filters, 20),
                    view.highlight_passage(int(found.passages[0]), ["running"]),
                    view.highlight_title(numbers[0], ["walrus", "trains", "explained", "straßen"]),
                    view.references(numbers[0], 10),
                    view.graph(numbers[:5], 2, 30),
                    [guess.word for guess in view.vocabulary().nearest("runing")],
                )
            )
    assert answers[0] == answers[1]
    stats = [storage.documents.stats() for storage in both]
    assert stats[0].collections == stats[1].collections
    assert stats[0].vectors == stats[1].vectors


def test_context_is_ranked_alike(both: list[AnyStorage]) -> None:
    chance = random.Random(3)
    items = [
        ContextItem(
            f"item-{number}",
            "session",
            chance.choice(("rule", "decision")),
            " ".join(chance.choices(WORDS, k=4)),
            " ".join(chance.choices(WORDS, k=chance.randint(5, 40))),
            f"2024-02-{number % 28 + 1:02}",
            module=chance.choice((None, "Auth", "search")),
        )
        for number in range(40)
    ]
    ranked = []
    for storage in both:
        storage.context.replace("file:a", "1", items)
        storage.context.remove("item-3")
        answers = []
        for wanted in (ItemFilter(), ItemFilter(type="rule"), ItemFilter(module="auth")):
            for text in ("alpha running", "+café gamma -naïve", '"alpha beta"', "getUserName high-speed"):
                found = storage.context.find(parse(text), wanted, 20)
                known = storage.context.items([row for row, _ in found])
                answers.append([(known[row].id, round(score, 9)) for row, score in found])
        ranked.append(answers)
    assert any(ranked[0])
    for first, second in zip(*ranked, strict=True):
        assert [score for _, score in first] == pytest.approx([score for _, score in second], rel=1e-6)
        assert {item for item, _ in first} == {item for item, _ in second}


@pytest.mark.parametrize("order", [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_a_store_is_copied_with_all_it_has_and_again(
    request: pytest.FixtureRequest, tmp_path: Path, order: tuple[str, str]
) -> None:
    source, target = (new_store(request, tmp_path / engine, engine).open() for engine in order)
    fill(source, *documents(30))
    fill(source, *documents(5, seed=8), collection="other", alias="o")
    embed_passages(source, StaticEmbedding())
    item = ContextItem("a", "session", "rule", "title", "alpha content", "2024-01-01")
    source.context.replace("file:a", "digest", [item])
    source.context.add(replace(item, id="b", title="by hand"))
    source.context.record_accesses([Access("app", "a.py", 3, 17.5)])
    source.indexes.create("mine", Tokenizer(lowercase=False), 10)
    index = source.indexes.find("mine")
    assert index is not None
    index.add(Entry("one", "Some Words", {"a": 1}), index.tokenizer("Some Words"))
    fill(target, prepared("own.md", "kept besides"), collection="target")

    copied = copy_storage(source, target)
    assert (copied.collections, copied.documents, copied.context_items, copied.indexes) == (2, 35, 2, 1)
    assert copied.vectors == 0  # the passage that the target had has none: the rest is computed in the background
    embed_passages(target, StaticEmbedding())
    for collection in ("notes", "other"):
        assert target.documents.collection(collection) == source.documents.collection(collection)
        for each in source.documents.list_documents(collection, 100).documents:
            assert target.documents.prepared(collection, each.id) == source.documents.prepared(collection, each.id)
    assert target.documents.has("target", "own.md")
    assert target.context.by_origin() == source.context.by_origin()
    assert target.context.accesses(10) == source.context.accesses(10)
    copy = target.indexes.find("mine")
    assert copy is not None
    assert [*copy.entries()] == [*index.entries()]
    query = Query(words=("alpha",))
    assert len(target.passages.search(query, 500, enough=1)) == len(source.passages.search(query, 500, enough=1))

    before = target.passages.numbers_of("notes", "3.md")
    copy_storage(source, target)
    assert target.passages.numbers_of("notes", "3.md") == before
    assert target.context.accesses(10) == source.context.accesses(10)
    source.close()
    target.close()


def test_vectors_are_copied_not_computed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    source, target = (new_store(request, tmp_path / engine, engine).open() for engine in ENGINES)
    fill(source, *documents(30))
    embed_passages(source, StaticEmbedding())
    copied = copy_storage(source, target)
    numbers = source.passages.numbers_of("notes", "4.md")
    assert copied.vectors == sum(len(each.chunks) for each in documents(30))
    theirs = target.vectors.vectors_of(target.passages.numbers_of("notes", "4.md"))
    assert list(theirs.values()) == list(source.vectors.vectors_of(numbers).values())
    assert target.documents.stats().waiting == 0
    search = target.vector_search
    assert search is not None
    vector = StaticEmbedding().embed(["alpha beta"], deadline_s=5)[0]
    assert len(search.nearest(vector, 10, VectorFilter())) == 10
    source.close()
    target.close()
