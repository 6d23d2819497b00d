"""The documentation that comes with Pointsman, in every new store."""

from __future__ import annotations

import pytest

from pointsman.archive import shipped
from pointsman.archive.model.documents import Manifest
from pointsman.archive.search.query_parser import parse
from pointsman.archive.shipped import ALIAS, COLLECTION, ensure_pages, shipped_pages
from tests.archive.engines import AnyStorage


def pages_in(storage: AnyStorage) -> set[str]:
    return {each.id for each in storage.documents.list_documents(COLLECTION, 100).documents}


def test_a_new_store_answers_the_first_search(storage: AnyStorage) -> None:
    ensure_pages(storage)
    assert pages_in(storage) == set(shipped_pages())
    assert "README.md" in shipped_pages()
    hits = storage.passages.search(parse("audit rows"), 5, enough=5)
    assert storage.passages.passages([hits[0].number])[hits[0].number].collection == COLLECTION
    found = storage.documents.collection(ALIAS)
    assert found is not None
    assert found.name == COLLECTION


def test_newer_pages_take_the_place_of_older(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_pages(storage)
    monkeypatch.setattr(shipped, "shipped_pages", lambda: {"README.md": "# New\nwords", "docs/x.md": "more"})
    ensure_pages(storage)
    assert pages_in(storage) == {"README.md", "docs/x.md"}
    document = storage.documents.document(COLLECTION, "README.md")
    assert document is not None
    assert document.title == "New"


def test_who_removed_them_does_not_get_them_again(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_pages(storage)
    storage.documents.remove_collection(COLLECTION)
    ensure_pages(storage)
    monkeypatch.setattr(shipped, "shipped_pages", lambda: {"README.md": "# New\n"})
    ensure_pages(storage)
    assert storage.documents.collections() == ()


def test_a_collection_of_ones_own_keeps_its_name(storage: AnyStorage) -> None:
    storage.documents.put_collection(Manifest(ALIAS))
    ensure_pages(storage)
    found = storage.documents.collection(ALIAS)
    assert found is not None
    assert found.name == ALIAS
    assert pages_in(storage)
