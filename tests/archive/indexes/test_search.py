"""Both kinds of index, held against each other and against a plain reading of the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.archive.indexes.indexes import Indexes, IndexLimits
from pointsman.archive.indexes.query import parse
from pointsman.archive.indexes.search import search
from pointsman.archive.model.indexes import Entry, Index, IndexFullError, Tokenizer
from pointsman.archive.store.sql.indexes import SqlIndexes
from pointsman.archive.store.sqlite.database import SqliteDatabase
from pointsman.archive.store.sqlite.storage import VERSIONS

Make = Callable[..., Index]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlIndexes]:
    database = SqliteDatabase(tmp_path_factory.mktemp("store") / "archive.db", VERSIONS)
    yield SqlIndexes(database)
    database.close()


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    database = SqliteDatabase(tmp_path / "archive.db", VERSIONS)
    indexes = Indexes(kept=lambda: SqlIndexes(database))

    def made(tokenizer: Tokenizer | None = None, **documents: str) -> Index:
        assert indexes.create("it", request.param, tokenizer or Tokenizer())
        index = indexes.find("it")
        assert index is not None
        for doc_id, content in documents.items():
            put(index, doc_id, content)
        return index

    yield made
    database.close()


def put(index: Index, doc_id: str, content: str) -> bool:
    return index.add(Entry(doc_id, content, {"id": doc_id}), index.tokenizer(content))


def found(index: Index, query: str, k: int = 100) -> list[str]:
    return [hit.entry.doc_id for hit in search(index, query, k).hits]


def test_what_is_demanded_is_there_and_what_is_excluded_is_not(make: Make) -> None:
    index = make(
        a="Python for machine learning",
        b="Machine, learning of snakes: python and cobra",
        c="learning a machine language",
        d="java",
    )
    assert set(found(index, "python java")) == {"a", "b", "d"}
    assert set(found(index, "+python learning")) == {"a", "b"}
    assert set(found(index, '"machine learning"')) == {"a", "b"}
    assert found(index, '+python "machine learning" -cobra') == ["a"]
    assert set(found(index, 'learning -"machine learning"')) == {"c"}
    assert found(index, "+python +java") == []
    assert found(index, '"learning machine"') == []


def test_rare_words_and_repeated_words_weigh_more_and_equals_keep_their_order(make: Make) -> None:
    index = make(
        plain="common words here",
        often="common common common",
        rare="common zebra",
        same="common words here",
    )
    assert found(index, "common zebra") == ["rare", "often", "plain", "same"]
    scores = [hit.score for hit in search(index, "common zebra", 10).hits]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)


def test_the_total_counts_what_is_not_shown(make: Make) -> None:
    index = make(**{f"doc{number}": f"word number{number}" for number in range(7)})
    answer = search(index, "word", 3)
    assert (len(answer.hits), answer.total) == (3, 7)


def test_adding_again_takes_the_place_of_the_former_and_the_same_again_changes_nothing(make: Make) -> None:
    index = make(a="alpha beta", b="alpha beta", c="gamma")
    before = search(index, "alpha beta gamma", 10)
    assert put(index, "a", "alpha beta")
    assert search(index, "alpha beta gamma", 10) == before
    assert put(index, "a", "delta delta")
    assert found(index, "alpha") == ["b"]
    assert found(index, "delta") == ["a"]
    assert search(index, "gamma", 10).total == 1


def test_a_tokenizer_may_keep_case_and_short_words_apart(make: Make) -> None:
    index = make(Tokenizer(lowercase=False, min_length=4), a="Apple pie with Cream", b="apple")
    assert found(index, "Apple") == ["a"]
    assert found(index, "pie") == []
    assert found(index, '"Apple tart with Cream"') == []
    assert found(index, '"Apple tea with Cream"') == ["a"]  # which short word it was is not known
    assert found(index, '"Apple with Cream"') == []


def test_composed_and_decomposed_letters_are_the_same(make: Make) -> None:
    index = make(a="Gro\u0308\u00dfe")
    assert found(index, "gr\u00f6\u00dfe") == ["a"]


def test_highlights_show_the_places_and_are_safe_inside_html(make: Make) -> None:
    filler = "lorem ipsum dolor sit amet " * 20
    text = f"{filler}<script>python</script> {filler}for machine learning {filler}python again {filler}python {filler}"
    [hit] = search(make(a=text), 'python "machine learning"', 10).hits
    assert len(hit.highlights) == 3
    assert all(shown.startswith("...") and shown.endswith("...") for shown in hit.highlights)
    assert any("&lt;script&gt;python&lt;/script&gt;" in shown for shown in hit.highlights)
    assert any("for machine learning" in shown for shown in hit.highlights)
    assert all(len(shown) < 250 for shown in hit.highlights)
    assert not any("<" in shown for shown in hit.highlights)


def test_a_short_document_is_its_own_highlight(make: Make) -> None:
    [hit] = search(make(a="Python\n  rate   limiting"), "rate", 10).hits
    assert hit.highlights == ["Python rate limiting"]


WORDS = st.sampled_from(["ab", "cd", "ef", "x"])  # the last is too short to be looked for
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)
QUERIES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["", "+", "-"]), WORDS).map("".join),
        st.tuples(st.sampled_from(["", "-"]), st.lists(WORDS, min_size=2, max_size=3)).map(
            lambda part: f'{part[0]}"{" ".join(part[1])}"'
        ),
    ),
    max_size=5,
).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(TEXTS, max_size=6), again=st.lists(st.tuples(st.integers(0, 5), TEXTS), max_size=3), query=QUERIES
)
def test_both_kinds_find_what_a_plain_reading_of_the_rules_finds(
    kept: SqlIndexes, texts: list[str], again: list[tuple[int, str]], query: str
) -> None:
    name = f"index{len(kept.names())}"
    assert kept.create(name, Tokenizer(), 10_000)
    on_disk, in_memory = kept.find(name), Indexes().find("default")
    assert on_disk is not None
    assert in_memory is not None
    written = dict(enumerate(texts))
    for number, text in [*written.items(), *again]:
        written[number] = text
        put(on_disk, str(number), text)
        put(in_memory, str(number), text)
    assert search(on_disk, query, 100) == search(in_memory, query, 100)
    assert set(found(in_memory, query)) == {str(number) for number, text in written.items() if fits(text, query)}


def fits(text: str, query: str) -> bool:
    parsed = parse(query, Tokenizer())
    padded = f" {text} "

    def holds(words: tuple[str, ...]) -> bool:
        return f" {' '.join(word or 'x' for word in words)} " in padded

    if not parsed.has_words or any(holds(words) for words in parsed.must_not):
        return False
    required = [*((word,) for word in parsed.must), *parsed.phrases]
    return all(map(holds, required)) if required else any(holds((word,)) for word in parsed.terms)


def test_memory_is_bounded_and_a_refusal_changes_nothing() -> None:
    indexes = Indexes(IndexLimits(indexes=2, documents=2, bytes=10_000))
    index = indexes.find("default")
    assert index is not None
    put(index, "a", "alpha")
    put(index, "b", "beta")
    with pytest.raises(IndexFullError, match="hold 2 documents; the limit is 2"):
        put(index, "c", "gamma")
    with pytest.raises(IndexFullError, match="the limit is 10000"):
        put(index, "b", "long " * 3_000)
    assert found(index, "beta gamma long") == ["b"]
    assert put(index, "b", "short")
    assert indexes.create("second", "memory", Tokenizer())
    with pytest.raises(IndexFullError, match="There are 2 indexes in memory"):
        indexes.create("third", "memory", Tokenizer())


def test_what_is_replaced_makes_room_again() -> None:
    index = Indexes(IndexLimits(documents=10, bytes=100_000)).find("default")
    assert index is not None
    for round_ in range(50):
        content = " ".join(f"word{round_}x{number}" for number in range(100))
        put(index, "a", content)
    assert found(index, "word49x7") == ["a"]
    assert found(index, "word48x7") == []


def test_many_different_words_count_for_what_they_take() -> None:
    """Each word costs far more memory than its letters."""
    index = Indexes(IndexLimits(bytes=1_000_000)).find("default")
    assert index is not None
    with pytest.raises(IndexFullError):
        put(index, "a", " ".join(f"{number:06}" for number in range(10_000)))


def test_indexes_in_the_store_are_bounded_in_number_and_there_again_when_it_is_opened_anew(tmp_path: Path) -> None:
    first = SqliteDatabase(tmp_path / "archive.db", VERSIONS)
    indexes = Indexes(IndexLimits(indexes=1), lambda: SqlIndexes(first))
    assert indexes.create("notes", "sqlite", Tokenizer(min_length=3))
    assert not indexes.create("notes", "memory", Tokenizer())
    with pytest.raises(IndexFullError, match="There are 1 indexes in the store"):
        indexes.create("more", "sqlite", Tokenizer())
    index = indexes.find("notes")
    assert index is not None
    put(index, "a", "to be or not")
    first.close()
    second = SqliteDatabase(tmp_path / "archive.db", VERSIONS)
    again = Indexes(kept=lambda: SqlIndexes(second))
    assert again.names() == ["default", "notes"]
    kept = again.find("notes")
    assert kept is not None
    assert (found(kept, "not"), found(kept, "to be")) == (["a"], [])
    second.close()
