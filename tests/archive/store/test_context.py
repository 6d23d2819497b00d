"""Context items in the store: replaced with their origin, found by words, filtered before ranking."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.archive.model.context import ContextItem, ItemFilter
from pointsman.archive.search.query_parser import parse
from pointsman.archive.store.sql.context import SqlContext
from tests.archive.engines import Place


@pytest.fixture
def store(place: Place) -> Iterator[SqlContext]:
    storage = place.open()
    yield storage.context
    storage.close()


def rule(number: int, content: str, module: str | None = None, kind: str = "rule") -> ContextItem:
    return ContextItem(f"i{number}", "discovery", kind, "", content, f"2026-01-0{number}T00:00:00Z", module=module)


def found(store: SqlContext, query: str, wanted: ItemFilter = ItemFilter()) -> list[str]:  # noqa: B008 - frozen
    rows = store.find(parse(query), wanted, 10)
    items = store.items([row for row, _ in rows])
    return [items[row].id for row, _ in rows]


def test_an_origin_is_replaced_as_a_whole(store: SqlContext) -> None:
    store.replace("file:a", "1", [rule(1, "use cookies"), rule(2, "use tabs")])
    store.replace("file:b", "1", [rule(3, "use mutexes")])
    store.replace("file:a", "2", [rule(1, "use tokens")])
    assert found(store, "use") == ["i3", "i1"] or found(store, "use") == ["i1", "i3"]
    assert found(store, "cookies tabs") == []
    assert store.digests("file:") == {"file:a": "2", "file:b": "1"}
    store.forget(["file:a"])
    assert found(store, "tokens") == []
    assert store.digests("file:") == {"file:b": "1"}


def test_an_id_is_there_once_wherever_it_comes_from(store: SqlContext) -> None:
    store.replace("file:a", "1", [rule(1, "cookies")])
    store.replace("file:b", "1", [rule(1, "mutexes")])
    assert found(store, "cookies") == []
    assert found(store, "mutexes") == ["i1"]
    assert store.remove("i1") is True
    assert store.remove("i1") is False


def test_names_in_code_are_found_by_their_parts(store: SqlContext) -> None:
    store.add(rule(1, "call getUserName before rendering"))
    assert found(store, "user") == ["i1"]


def test_what_does_not_fit_is_left_out_before_ranking(store: SqlContext) -> None:
    store.replace("o", "1", [rule(n, "token " * 9, "other") for n in range(1, 8)])
    store.add(rule(8, "one token among many words of another kind", "Auth", "issue"))
    rows = store.find(parse("token"), ItemFilter("issue", "auth"), 1)
    assert [one.id for one in store.items([row for row, _ in rows]).values()] == ["i8"]
    assert [one.id for one in store.newest(ItemFilter(module="other"), 2)] == ["i7", "i6"]


def test_vectors_belong_to_a_space_and_changes_are_seen(store: SqlContext) -> None:
    store.replace("o", "1", [rule(1, "one"), rule(2, "two")])
    before = store.generation()
    waiting = store.without_vector("s1", 10)
    assert [text for _, text in waiting] == ["\none", "\ntwo"]
    store.put_vectors("s1", [(waiting[0][0], b"\x00\x3c")])
    assert store.generation() != before
    assert [known.vector for known in store.vectors("s1")] == [b"\x00\x3c"]
    assert len(store.without_vector("s1", 10)) == 1
    assert len(store.without_vector("s2", 10)) == 2
    figures = store.stats("s1")
    assert (figures.items, figures.embedded, figures.by_source) == (2, 1, {"discovery": 2})


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=60))
def test_whatever_is_asked_is_never_syntax(store: SqlContext, query: str) -> None:
    store.find(parse(query), ItemFilter(), 5)
