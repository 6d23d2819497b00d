"""Full-text search in passages: matches, their order, and deletions."""

from __future__ import annotations

import pytest

from pointsman.archive.model.query import Filters, Query
from pointsman.archive.search.query_parser import parse
from pointsman.archive.store import postings, text_search
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared


def found(storage: AnyStorage, text: str, limit: int = 10) -> list[str]:
    hits = storage.passages.search(parse(text), limit, enough=limit)
    there = storage.passages.passages([hit.number for hit in hits])
    return [there[hit.number].chunk.text for hit in hits]


def test_passages_with_all_the_words_come_before_those_with_some(storage: AnyStorage) -> None:
    fill(
        storage,
        prepared("a.md", "kettle kettle kettle kettle", "teapot and kettle, side by side with much else", "cup"),
    )
    assert found(storage, "kettle teapot") == [
        "teapot and kettle, side by side with much else",
        "kettle kettle kettle kettle",
    ]


def test_endings_accents_and_case_do_not_matter(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Installing the café"))
    for asked in ("install", "installed CAFE", "Café"):
        assert found(storage, asked) == ["Installing the café"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("call getUserName here", ["user", "getUserName", "username name", "getusername", '"user name"']),
        ("the HTTPServer class", ["http", "server", "HTTPServer"]),
        ("set max_retry_count", ["retry", "max_retry_count", "count"]),
        ("pass --dry-run to it", ["dry", "dry-run", "--dry-run"]),
        ("東京都の天気", ["東京", "天気"]),
    ],
)
def test_names_are_found_whole_and_by_their_parts(storage: AnyStorage, text: str, asked: list[str]) -> None:
    fill(storage, prepared("a.md", text), prepared("b.md", "nothing of the kind"))
    for each in asked:
        assert found(storage, each)[:1] == [text], each


def test_what_must_be_there_is_there_and_what_must_not_is_not(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "red apple", "green apple", "red pear", "apple red"))
    assert set(found(storage, "+apple red")) == {"red apple", "apple red", "green apple"}
    assert found(storage, "apple -red") == ["green apple"]
    assert found(storage, '"red apple"') == ["red apple"]
    assert found(storage, '+apple -"red apple" red')[0] == "apple red"
    assert found(storage, "+apple +plum") == []


def test_titles_and_headings_are_searched_and_titles_weigh_double(storage: AnyStorage) -> None:
    fill(
        storage,
        prepared("a.md", "about zebras in general", title="Horses"),
        prepared("b.md", "about animals in general", title="Zebras"),
        prepared("c.md", "about something in general", title="Cows", heading="Striped giraffes"),
    )
    assert found(storage, "zebra") == ["about animals in general", "about zebras in general"]
    assert found(storage, "giraffe") == ["about something in general"]


def test_filters_hold_before_the_ranking(storage: AnyStorage) -> None:
    fill(
        storage,
        *(
            prepared(f"{year}.md", f"report {year}", date=f"{year}-03-04", tags=("Yearly",))
            for year in range(2015, 2025)
        ),
        prepared("web.md", "report web", source="url", date="2020-01-01T10:00:00Z"),
        alias="n",
    )
    fill(storage, prepared("x.md", "report other"), collection="other")
    assert found(storage, "report after:2023 collection:n") == ["report 2023", "report 2024"]
    assert found(storage, "report before:2016-03-04") == ["report 2015"]
    assert found(storage, "report source:url") == ["report web"]
    assert found(storage, "report -tag:yearly -collection:other") == ["report web"]
    assert found(storage, "report tag:YEARLY after:2024") == ["report 2024"]
    assert found(storage, "report collection:other") == ["report other"]
    assert found(storage, "report collection:n source:url") == ["report web"]
    assert found(storage, "report collection:none") == []


def test_what_was_replaced_or_removed_is_not_found_before_and_after_the_housekeeping(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "old walrus", "walrus stays"), prepared("b.md", "removed walrus"))
    fill(storage, prepared("a.md", "new walrus", "walrus stays"))
    storage.documents.remove_documents("notes", ["b.md"])
    for _ in range(2):
        assert sorted(found(storage, "walrus")) == ["new walrus", "walrus stays"]
        assert storage.passages.passages([1]) == {}
        storage.housekeeper.tidy()
    with storage.database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM passages").fetchone() == (2,)


def test_the_commonest_words_are_left_out_only_where_they_cost_much(
    storage: AnyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "POSTINGS_PER_BLOCK", 4)
    fill(storage, *(prepared(f"{number}.md", f"common item{number}") for number in range(20)))
    query = Query(words=("common", "item7", "missing"))
    assert len(storage.passages.search(query, 100, enough=100)) == 20
    monkeypatch.setattr(text_search, "MOST_POSTINGS", 5)
    assert len(storage.passages.search(query, 100, enough=100)) == 1
    assert len(storage.passages.search(Query(words=("common",)), 100, enough=100)) == 20


def test_the_scope_of_filters_is_told_in_numbers(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "x", tags=("t",)), prepared("b.md", "y"))
    assert storage.passages.scope(Filters()).documents is None
    documents = storage.passages.scope(Filters(tags=("t",))).documents
    assert documents is not None
    assert len(documents) == 1
    assert storage.passages.scope(Filters(collections=("none",))).collections == frozenset()
