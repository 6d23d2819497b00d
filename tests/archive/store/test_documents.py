"""Collections and documents: written, replaced, left alone if unchanged, removed."""

from __future__ import annotations

import pytest

from pointsman.archive.model.documents import Collection, FileState, Manifest
from pointsman.archive.store.errors import NameTakenError, UnknownCollectionError
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared

STATE = FileState("/notes/a.md", 10, 20, "abc")


def numbers(storage: AnyStorage, id_: str) -> list[int]:
    return storage.passages.numbers_of("notes", id_)


def test_a_collection_is_found_by_its_name_and_by_its_alias(storage: AnyStorage) -> None:
    manifest = Manifest("@acme/handbook", "handbook", "1.2", "How we work")
    storage.documents.put_collection(manifest)
    assert storage.documents.collection("@acme/handbook") == Collection(manifest, 0)
    assert storage.documents.collection("handbook") == Collection(manifest, 0)
    assert storage.documents.collection("acme") is None


def test_a_collection_that_is_put_again_keeps_its_documents(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "text"))
    storage.documents.put_collection(Manifest("notes", "n", "2"))
    (collection,) = storage.documents.collections()
    assert (collection.documents, collection.shown_as, collection.manifest.version) == (1, "n", "2")


def test_an_alias_leads_to_one_collection_only(storage: AnyStorage) -> None:
    storage.documents.put_collection(Manifest("notes", "n"))
    with pytest.raises(NameTakenError, match='"notes" is already the name or alias of the collection "notes"'):
        storage.documents.put_collection(Manifest("other", "notes"))
    with pytest.raises(NameTakenError, match='"n" is already the name or alias of the collection "notes"'):
        storage.documents.put_collection(Manifest("n"))
    storage.documents.put_collection(Manifest("same", "same"))
    assert [each.shown_as for each in storage.documents.collections()] == ["n", "same"]


def test_a_document_comes_back_as_it_was_put(storage: AnyStorage) -> None:
    one = prepared(
        "a.md", "one", "two", tags=("x", "Y"), url="https://example.org/a", metadata={"by": ["me"]}, origin=STATE
    )
    fill(storage, one, alias="n")
    assert storage.documents.document("n", "a.md") == one.document
    assert storage.documents.chunks_of("n", "a.md") == one.chunks
    assert storage.documents.document("n", "b.md") is None
    assert storage.documents.chunks_of("n", "b.md") == ()


def test_documents_are_listed_by_their_ids_page_by_page(storage: AnyStorage) -> None:
    fill(storage, *(prepared(f"{letter}.md", letter * 3) for letter in "cabd"))
    page = storage.documents.list_documents("notes", 2, 1)
    assert ([each.id for each in page.documents], page.total) == (["b.md", "c.md"], 4)
    assert page.documents[0].size == 3


def test_whoever_names_no_collection_is_told_so(storage: AnyStorage) -> None:
    for asked in (
        lambda: storage.documents.document("x", "a"),
        lambda: storage.documents.list_documents("x", 1),
        lambda: storage.documents.put_documents("x", []),
        lambda: storage.documents.origins("x"),
    ):
        with pytest.raises(UnknownCollectionError, match='Collection "x" not found'):
            asked()
    assert storage.documents.remove_collection("x") is False


def test_only_passages_that_changed_are_written_anew(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one", "two", "three"))
    before = numbers(storage, "a.md")
    fill(storage, prepared("a.md", "zero", "one", "TWO", "three"))
    after = numbers(storage, "a.md")
    assert [number in before for number in after] == [False, True, False, True]
    assert [chunk.start_line for chunk in storage.documents.chunks_of("notes", "a.md")] == [1, 3, 5, 7]
    assert storage.documents.stats().collections[0].chunks == 4


def test_equal_passages_are_told_apart(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "same", "same", "same"))
    before = numbers(storage, "a.md")
    fill(storage, prepared("a.md", "same", "same"))
    assert numbers(storage, "a.md") == before[:2]


def test_a_new_title_is_found_in_every_passage(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one", "two", title="Alpha"))
    fill(storage, prepared("a.md", "one", "two", title="Beta"))
    passages = storage.passages.passages(numbers(storage, "a.md"))
    assert [passage.title for passage in passages.values()] == ["Beta", "Beta"]


def test_an_id_twice_in_a_batch_means_the_last(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one"), prepared("a.md", "two"))
    assert [chunk.text for chunk in storage.documents.chunks_of("notes", "a.md")] == ["two"]
    assert storage.documents.list_documents("notes", 10).total == 1


def test_removed_documents_and_collections_leave_nothing(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one"), prepared("b.md", "two"))
    assert storage.documents.remove_documents("notes", ["a.md", "a.md", "none.md"]) == 1
    assert storage.documents.document("notes", "a.md") is None
    assert storage.documents.stats().collections[0].chunks == 1
    assert storage.documents.remove_collection("notes") is True
    assert storage.documents.collections() == ()
    fill(storage)
    assert storage.documents.list_documents("notes", 10).total == 0


def test_a_batch_that_fails_changes_nothing(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one"))
    with pytest.raises(AttributeError):
        storage.documents.put_documents("notes", [prepared("b.md", "two"), object()])  # type: ignore[list-item]
    assert storage.documents.list_documents("notes", 10).total == 1
    assert storage.documents.document("notes", "b.md") is None


def test_files_are_remembered_as_they_looked(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one", origin=STATE), prepared("b.md", "two"))
    assert storage.documents.origins("notes") == {"a.md": STATE}
    touched = FileState("/notes/a.md", 10, 99, "abc")
    storage.documents.touch("notes", "a.md", touched)
    assert storage.documents.origins("notes") == {"a.md": touched}


def test_wrong_names_lead_to_those_that_resemble_them(storage: AnyStorage) -> None:
    fill(storage, prepared("guide/install.md", "x"), prepared("guide/usage.md", "y"), alias="handbook")
    assert storage.documents.nearest_documents("notes", "instal.md", 1) == ["guide/install.md"]
    assert storage.documents.nearest_collections("handbok") == ["handbook"]
    assert storage.documents.nearest_documents("notes", "§§§") == []
