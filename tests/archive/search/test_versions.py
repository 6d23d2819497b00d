"""Version numbers are found with and without their `v`."""

from __future__ import annotations

import pytest

from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import LOW_SCORE, Answer, Searcher
from pointsman.archive.store.excerpts import excerpt
from pointsman.archive.text.words import is_identifier, spellings
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared


def found(storage: AnyStorage, query: str, *, vectors: bool = True) -> Answer:
    embeddings = StaticEmbedding() if vectors else None
    if embeddings is not None:
        embed_passages(storage, embeddings)
    return Searcher(storage, embeddings).search(parse(query), 5)


@pytest.mark.parametrize("vectors", [True, False], ids=["with vectors", "by words"])
@pytest.mark.parametrize("written", ["v2.3.1", "2.3.1"])
@pytest.mark.parametrize("query", ["2.3.1", "v2.3.1", "V2.3.1", "what changed in 2.3.1?", '"2.3.1"', "+v2.3.1"])
def test_a_version_is_found_with_and_without_its_letter(
    storage: AnyStorage, written: str, query: str, vectors: bool
) -> None:
    fill(storage, prepared("new.md", f"What changed: release {written} repairs the import of tables."))
    fill(storage, prepared("old.md", "What changed: release v2.3.0 and 2.3.2 speed up the 1 import of 3 tables by 2."))
    answer = found(storage, query, vectors=vectors)
    assert answer.found[0].passage.document == "new.md"
    assert answer.found[0].relevance >= 0.6
    assert answer.notices == ()


def test_another_version_does_not_answer(storage: AnyStorage) -> None:
    fill(storage, prepared("new.md", "Release v2.3.1 repairs the import."))
    answer = found(storage, "2.3.9", vectors=False)
    assert all(hit.relevance < LOW_SCORE for hit in answer.found)
    assert len(answer.notices) == 1


def test_a_version_is_excluded_with_and_without_its_letter(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "The import of v2.3.1"), prepared("b.md", "The import of 2.3.0"))
    assert [hit.passage.document for hit in found(storage, "import -2.3.1").found] == ["b.md"]


def test_the_section_of_a_version_comes_first(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "As in 2.3.1.", heading="v2.4.0"))
    fill(storage, prepared("b.md", "The import of tables is repaired, and the printer stops.", heading="v2.3.1"))
    assert found(storage, "2.3.1").found[0].passage.document == "b.md"


def test_an_excerpt_marks_both_spellings() -> None:
    assert excerpt("Since v2.3.1 or 2.3.1", ["2.3.1"]) == "Since <mark>v2.3.1</mark> or <mark>2.3.1</mark>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.3.1", ("2.3.1", "v2.3.1")),
        ("V2.3", ("2.3", "v2.3")),
        ("v1.0.0-rc.1", ("1.0.0-rc.1", "v1.0.0-rc.1")),
        ("v2", ("v2",)),
        ("2024", ("2024",)),
        ("valve 2.3", ("valve 2.3",)),
    ],
)
def test_spellings(text: str, expected: tuple[str, ...]) -> None:
    assert spellings(text) == expected


def test_a_number_of_three_parts_is_an_identifier() -> None:
    assert is_identifier("2.3.1")
    assert not is_identifier("2.3")
