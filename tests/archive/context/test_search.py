"""What is found, in which order, and what is said while vectors are missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pointsman.archive.context.search import PARTLY, TEXT_ONLY, ContextSearch, NoContextError, NoVectorsYetError
from pointsman.archive.context.vectors import ContextVectors
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.context import Access, ContextItem, ItemFilter
from pointsman.archive.store.sql.context import SqlContext
from tests.archive.engines import Place

ALL = ItemFilter()
NOTES = [
    ("pattern", "auth", "Use JWT tokens stored in httpOnly cookies for auth"),
    ("pattern", "auth", "Implement token refresh with mutex locks to prevent race conditions"),
    ("issue", "auth", "Token refresh race condition fixed with mutex lock"),
    ("decision", "storage", "We chose PostgreSQL over MongoDB because reports need joins"),
    ("rule", "style", "Indent with four spaces"),
]


class Context:
    def __init__(self, store: SqlContext) -> None:
        self.store = store
        self.vectors = ContextVectors(store, StaticEmbedding())
        self.woken = 0
        self.search = ContextSearch(
            store, self.vectors, lambda path: path.partition("/")[0], self._wake, wall_clock=lambda: 0.0
        ).search

    def add(self, number: int, kind: str, module: str, content: str) -> None:
        self.store.add(ContextItem(f"d{number}", "discovery", kind, "", content, "2026-01-01T00:00:00Z", module=module))

    def add_all(self) -> None:
        for number, note in enumerate(NOTES):
            self.add(number, *note)

    def embed(self) -> None:
        self.vectors.embed_missing(threading.Event())

    def ids(self, query: str, wanted: ItemFilter = ALL, limit: int = 5) -> list[str]:
        return [hit.item.id for hit in self.search(query, wanted, limit).hits]

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def context(place: Place) -> Iterator[Context]:
    storage = place.open()
    yield Context(storage.context)
    storage.close()


def test_meaning_and_words_find_what_was_learned(context: Context) -> None:
    context.add_all()
    context.embed()
    assert context.ids("how does authentication work")[0] in ("d0", "d1")
    assert context.ids("show me decisions about the database choice")[0] == "d3"
    assert context.ids("token refresh issue", ItemFilter("issue", "auth"), 3) == ["d2"]
    found = context.search("token refresh race condition mutex", ALL, 1)
    assert found.total >= 2
    assert found.notice is None
    assert found.hits[0].score > 0.9


@pytest.mark.parametrize("query", ["2.3.1", "v2.3.1"])
def test_a_version_is_found_with_and_without_its_letter(context: Context, query: str) -> None:
    context.add_all()
    context.add(7, "issue", "release", "Tables were lost by v2.3.1 on Windows")
    context.add(8, "issue", "release", "Charts were lost by 2.3.1 on Windows")
    assert set(context.ids(query, limit=2)) == {"d7", "d8"}


def test_what_nothing_fits_gets_a_low_score(context: Context) -> None:
    context.add_all()
    context.embed()
    assert all(hit.score < 0.5 for hit in context.search("banana bread recipe", ALL, 5).hits)


def test_without_vectors_words_answer_and_the_answer_says_so(context: Context) -> None:
    with pytest.raises(NoContextError):
        context.search("cookies", ALL, 5)
    context.add_all()
    found = context.search("cookies", ALL, 5)
    assert [hit.item.id for hit in found.hits] == ["d0"]
    assert found.notice == TEXT_ONLY
    assert context.woken == 1
    with pytest.raises(NoVectorsYetError):
        context.search("bananas", ALL, 5)
    context.embed()
    context.add(9, "rule", "style", "Name cookies by their purpose")
    assert context.search("cookies", ALL, 5).notice == PARTLY


def test_what_is_read_a_lot_comes_first_among_equals_and_only_there(context: Context) -> None:
    for number, module in enumerate(("billing", "mail", "other")):
        context.add(number, "rule", module, "Retry three times with growing pauses" if number < 2 else "Retry")
    context.embed()
    first, second = context.ids("retry three times with growing pauses", limit=2)
    other = {"d0": "billing", "d1": "mail"}[second]
    context.store.record_accesses([Access("app", f"{other}/a.ts", 5, 0.0), Access("app", "other/x.ts", 500, 0.0)])
    assert context.ids("retry three times with growing pauses") == [second, first, "d2"]
