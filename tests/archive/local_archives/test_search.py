"""What is found, in which order, and what is shown of it."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.archive.local_archives.search import Found, search
from pointsman.archive.search.query_parser import parse
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared


def find(storage: AnyStorage, query: str, *, fuzzy: bool = True, limit: int = 10) -> Found:
    with storage.archives.reading() as view:
        return search(view, query, parse(query), fuzzy, limit)


def ids(found: Found) -> list[str]:
    return [hit.document.id.removeprefix("notes/") for hit in found.hits]


def test_words_of_different_passages_are_brought_together(storage: AnyStorage) -> None:
    fill(
        storage,
        prepared("apart.md", "About penguins.", "About glaciers."),
        prepared("one.md", "About penguins.", "Penguins again.", "And penguins."),
        prepared("near.md", "Penguins on glaciers.", "Else."),
    )
    found = find(storage, "penguins glaciers")
    assert ids(found) == ["near.md", "apart.md", "one.md"]
    assert found.hits[1].score > 0.5 > found.hits[2].score > 0
    assert found.matches == 3


def test_a_title_counts(storage: AnyStorage) -> None:
    fill(
        storage,
        prepared("text.md", "All about penguins and more.", title="Birds"),
        prepared("title.md", "All about penguins and more.", title="Penguins"),
        prepared("only.md", "Nothing of them here.", title="Penguins elsewhere"),
    )
    found = find(storage, "penguins")
    assert ids(found)[0] == "title.md"
    assert set(ids(found)) == {"title.md", "text.md", "only.md"}
    assert all(0 <= hit.score <= 1 for hit in found.hits)


def test_an_exact_hit_ranks_above_a_corrected_one(storage: AnyStorage) -> None:
    common = [prepared(f"{n}.md", "The machine machine machine.", title="Machine") for n in range(25)]
    fill(storage, *common, prepared("slip.md", "Long text about many things, with a machne among them."))
    found = find(storage, "machne", limit=5)
    assert ids(found)[0] == "slip.md"
    assert found.corrections == {"machne": ("machine",)}
    assert found.hits[0].score > 0.5 > found.hits[1].score
    assert found.matches == 26


def test_one_word_as_written_ranks_above_another_that_was_corrected(storage: AnyStorage) -> None:
    """However rare the corrected one is, and wherever it stands: both words together come first."""
    fill(
        storage,
        *(prepared(f"{n}.md", "A deployment of something.") for n in range(8)),
        prepared("guessed.md", "Kubernetes, kubernetes.", "Kubernetes.", title="Kubernetes"),
        prepared("both.md", "A deployment to kubernetes."),
    )
    found = find(storage, "kuberentes deployment", limit=20)
    assert ids(found)[0] == "both.md"
    assert ids(found)[-1] == "guessed.md"
    assert len(found.hits) == 10


def test_a_slip_is_corrected_and_said(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Photosynthesis in leaves."), prepared("b.md", "Leaves fall."))
    found = find(storage, "fotosynthesis Leaves")
    assert ids(found) == ["a.md", "b.md"]
    assert found.did_you_mean == "photosynthesis Leaves"
    assert found.hits[0].snippets == ("<mark>Photosynthesis</mark> in <mark>leaves</mark>.",)
    assert ids(find(storage, "fotosynthesis", fuzzy=False)) == []
    assert find(storage, "fotosynthesis Leaves", fuzzy=False).corrections == {}


@pytest.mark.parametrize("query", ["", "   ", "+", '""', "()", "tag:nothing", "source:url", "-leaves"])
def test_a_query_that_asks_for_nothing_there_finds_nothing(storage: AnyStorage, query: str) -> None:
    fill(storage, prepared("a.md", "Leaves."))
    assert find(storage, query) == Found((), 0, {}, None)


@pytest.mark.parametrize(
    "query", ['leaves "', "leaves AND", "leaves*", "col:leaves leaves", "NEAR(leaves)", "leaves^2 leaves"]
)
def test_signs_of_other_languages_do_no_harm(storage: AnyStorage, query: str) -> None:
    fill(storage, prepared("a.md", "Leaves."))
    assert ids(find(storage, query)) == ["a.md"]


def test_names_and_compounds_are_found_by_their_parts(storage: AnyStorage) -> None:
    fill(
        storage,
        prepared("code.md", "Call getUserName first."),
        prepared("train.md", "A train of high speed."),
        prepared("quoted.md", "A high-speed train."),
    )
    assert ids(find(storage, "user")) == ["code.md"]
    assert ids(find(storage, "getUserName")) == ["code.md"]
    assert ids(find(storage, "train-speed")) == ["train.md", "quoted.md"]


def test_musts_nots_phrases_and_filters_hold_for_whole_documents(storage: AnyStorage) -> None:
    fill(
        storage,
        prepared("a.md", "Red apples.", "Green pears.", tags=("fruit",)),
        prepared("b.md", "Red cars.", "Apples too.", source="url", date="2025-01-01"),
        prepared("c.md", "Apples are red."),
    )
    queries: dict[str, Any] = {
        "apples +pears": ["a.md"],
        "apples -cars -pears": ["c.md"],
        '"red apples"': ["a.md"],
        "apples tag:fruit": ["a.md"],
        "apples source:url": ["b.md"],
        "apples after:2025": ["b.md"],
        "apples collection:elsewhere": [],
    }
    assert {query: ids(find(storage, query)) for query in queries} == queries


def test_filters_alone_list_the_newest_documents(storage: AnyStorage) -> None:
    days = ["2024-01-02", "2024-03-01", "2023-05-05"]
    fill(storage, *(prepared(f"{day}.md", "Text.", "Draft." if day[3] == "3" else "Done.", date=day) for day in days))
    found = find(storage, "source:research", limit=2)
    assert ids(found) == ["2024-03-01.md", "2024-01-02.md"]
    assert found.matches == 3
    assert ids(find(storage, "source:research -draft")) == ["2024-03-01.md", "2024-01-02.md"]


def test_phrases_are_marked_whole_and_the_text_is_escaped(storage: AnyStorage) -> None:
    text = "<script>alert(1)</script> & Machine Learning, or <mark>learning</mark> by machine."
    fill(storage, prepared("a.md", text, title="On Machine Learning <b>"))
    (hit,) = find(storage, "machine learning").hits
    assert hit.title == "On <mark>Machine Learning</mark> &lt;b&gt;"
    assert hit.snippets == (
        "&lt;script&gt;alert(1)&lt;/script&gt; &amp; <mark>Machine Learning</mark>, or "
        "&lt;mark&gt;<mark>learning</mark>&lt;/mark&gt; by <mark>machine</mark>.",
    )


def test_snippets_are_few_and_short(storage: AnyStorage) -> None:
    texts = [f"{'before ' * 500}needle {'x' * 3_000} {'after ' * 500}{n}" for n in range(6)]
    fill(storage, prepared("a.md", *texts, title=f"Needle {'long ' * 500}"))
    (hit,) = find(storage, "needle").hits
    assert len(hit.snippets) == 3
    assert all("<mark>needle</mark>" in snippet and len(snippet) < 600 for snippet in hit.snippets)
    assert hit.title is not None
    assert len(hit.title) < 600


def test_what_was_removed_or_replaced_is_not_found(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Penguins."), prepared("b.md", "Penguins."))
    assert set(ids(find(storage, "penguins"))) == {"a.md", "b.md"}
    storage.documents.remove_documents("notes", ["a.md"])
    fill(storage, prepared("b.md", "Walruses."))
    assert ids(find(storage, "penguins", fuzzy=False)) == []
    storage.housekeeper.tidy()
    assert ids(find(storage, "penguins", fuzzy=False)) == []
    assert ids(find(storage, "walruses")) == ["b.md"]


def test_what_was_removed_is_no_reason_to_leave_a_slip(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Penguins."), prepared("b.md", "Pengiuns."), prepared("c.md", "Pengiuns."))
    storage.documents.remove_documents("notes", ["b.md", "c.md"])
    found = find(storage, "pengiuns")
    assert (ids(found), found.corrections) == (["a.md"], {"pengiuns": ("penguins",)})
    storage.documents.remove_documents("notes", ["a.md"])
    assert find(storage, "pengiuns") == Found((), 0, {}, None)


def test_documents_of_the_same_name_in_two_collections_are_told_apart(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Penguins."))
    fill(storage, prepared("a.md", "Penguins.", collection="web"), collection="web")
    assert sorted(hit.document.id for hit in find(storage, "penguins").hits) == ["notes/a.md", "web/a.md"]
