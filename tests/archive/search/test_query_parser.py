"""The query language: what is understood, what is plain words, and what is said of the rest."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.archive.model.query import Filters
from pointsman.archive.search.query_parser import MAX_CHARS, MAX_MUSTS, MAX_REPEATS, MAX_WORDS, parse
from tests.archive.engines import ENGINES, AnyStorage, Place, new_store
from tests.archive.sample_documents import fill, prepared


def test_words_musts_nots_and_phrases_are_told_apart() -> None:
    query = parse('install +linux -windows "package manager" -"old version" guide')
    assert query.words == ("install", "guide")
    assert query.must == ("linux", "package manager")
    assert query.must_not == ("windows", "old version")
    assert query.prose == "install linux package manager guide"


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("collection:docs Tag:Python source:URL x", Filters(collections=("docs",), tags=("Python",), sources=("url",))),
        ('tag:"two words" -tag:old', Filters(tags=("two words",), not_tags=("old",))),
        ("-collection:a -source:research", Filters(not_collections=("a",), not_sources=("research",))),
        ("after:2024 before:2024-06", Filters(after="2024-01-01", before="2024-06-01")),
        ("after:2023 after:2024-05-31", Filters(after="2024-05-31")),
        ("-after:2024-05-31", Filters(before="2024-05-31")),
    ],
)
def test_filters_are_understood_and_can_be_negated(text: str, filters: Filters) -> None:
    assert parse(text).filters == filters


@pytest.mark.parametrize("text", ["after:yesterday x", "before:2024-13 x", "after:2024-02-30 x", "source:web x"])
def test_a_value_that_makes_no_sense_is_left_out_with_a_word(text: str) -> None:
    query = parse(text)
    assert (query.filters, query.words) == (Filters(), ("x",))
    assert f"`{text.split()[0]}` was ignored" in query.notices[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("std:vector", ("std:vector",)),
        ("https://example.org/a", ("https://example.org/a",)),
        ("tag:", ("tag",)),
        ("--watch", ("--watch",)),
        ("C++ & Rust?", ("c++", "rust")),
        ("getUserName HTTPServer NASA", ("getUserName", "HTTPServer", "nasa")),
        ("a AND (b OR c) NEAR d*", ("a", "and", "b", "or", "c", "near", "d")),
        ("velocity,pressure", ("velocity", "pressure")),
        ('half "a phrase', ("half",)),
        ("- + \" ''", ()),
    ],
)
def test_what_is_no_operator_is_plain_words(text: str, words: tuple[str, ...]) -> None:
    assert parse(text).words == words


def test_in_running_text_a_quoted_phrase_is_not_required() -> None:
    question = 'how is the "retry limit" of a connection chosen, and does it hold for a server that was started by hand'
    long = parse(question)
    assert long.must == ()
    assert "retry limit" in long.words
    assert "not required" in long.notices[0]
    assert parse('where is the "retry limit" of a connection').must == ("retry limit",)
    assert parse(question.replace('"retry', '+"retry')).must == ("retry limit",)


def test_an_open_quote_and_curly_quotes_make_phrases() -> None:
    assert parse('half "a phrase').must == ("a phrase",)
    assert parse("\u201ca phrase\u201d").must == ("a phrase",)


def test_a_repeated_word_is_wanted_more_within_bounds() -> None:
    assert parse("Flow flow flow heat").words == ("flow", "flow", "flow", "heat")
    assert len(parse("flow " * 6_000).words) == MAX_REPEATS


def test_everything_is_bounded_and_what_is_left_out_is_told() -> None:
    long = parse(" ".join(f"word{number}" for number in range(1_000)))
    assert len(long.words) == MAX_WORDS
    assert "first 64 words" in long.notices[0]
    assert len(parse(" ".join(f"+w{number}" for number in range(100))).must) == MAX_MUSTS
    assert "characters" in parse("x" * (MAX_CHARS + 1)).notices[0]


def test_nothing_asked_for_is_empty() -> None:
    for text in ("", "  ", "-only -nots", "tag:x after:2024", "!?"):
        assert parse(text).empty


@pytest.fixture(scope="module", params=ENGINES)
def small_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AnyStorage:
    storage = new_store(request, tmp_path_factory.mktemp("store"), request.param).open()
    fill(storage, prepared("a.md", "alpha beta AND OR NOT", 'the "gamma" * ^ : - delta'))
    return storage


SYNTAX = st.sampled_from(
    [
        '"',
        "'",
        "*",
        "^",
        "(",
        ")",
        ":",
        "-",
        "+",
        "AND",
        "OR",
        "NOT",
        "NEAR(",
        "{a b}",
        "\0",
        "\ud800",
        "tag:",
        "after:",
        "alpha",
        " ",
        "字字",
        "getX",
        ",",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(
        st.text(max_size=40), st.lists(SYNTAX, max_size=12).map("".join), st.lists(SYNTAX, max_size=12).map(" ".join)
    )
)
def test_no_text_whatever_is_an_error_to_the_store(small_store: AnyStorage, text: str) -> None:
    query = parse(text)
    small_store.passages.search(query, 10, enough=10)
    small_store.passages.required_and_excluded(query)
    small_store.passages.scope(query.filters)


@pytest.mark.parametrize(
    "text",
    ["alpha AND", '"alpha', "alpha*", "alpha OR", "(alpha", "NEAR(alpha, 2)", "text:alpha", "^alpha", "alpha;--"],
)
def test_syntax_of_the_index_does_not_keep_words_from_being_found(small_store: AnyStorage, text: str) -> None:
    assert small_store.passages.search(parse(text), 10, enough=10)


def test_thousands_of_repeated_words_cost_as_much_as_a_few(place: Place) -> None:
    storage = place.open()
    fill(storage, *(prepared(f"{number}.md", "flow heat") for number in range(50)))
    hits = storage.passages.search(parse("flow heat " * 3_300), 10, enough=10)
    storage.close()
    assert len(hits) == 10
