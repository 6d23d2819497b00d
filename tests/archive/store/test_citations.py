"""Resolution of citations to documents: by path, address, number or title, and again after changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pointsman.archive.citations.extract import citations_of
from pointsman.archive.model.documents import PreparedDocument
from pointsman.archive.store.archives import Graph, References
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared


def citing(id_: str, *texts: str, **more: Any) -> PreparedDocument:
    """A document with the citations that are in its text."""
    made = prepared(id_, *(texts or ("Text.",)), **more)
    return replace(made, citations=citations_of(made.document.content))


def number(storage: AnyStorage, shown: str) -> int:
    collection, _, name = shown.partition("/")
    with storage.database.reading() as connection:
        (row,) = connection.execute(
            "SELECT documents.id FROM documents JOIN collections ON collections.id = collection "
            "WHERE collections.name = ? AND documents.name = ?",
            (collection, name),
        ).fetchone()
    return int(row)


def references(storage: AnyStorage, shown: str, most: int = 50) -> References:
    row = number(storage, shown)
    with storage.archives.reading() as view:
        return view.references(row, most)


def cited_by(storage: AnyStorage, shown: str) -> list[tuple[str | None, float]]:
    return [(each.target, each.confidence) for each in references(storage, shown).citing]


def graph(storage: AnyStorage, *shown: str, depth: int = 1, most: int = 200) -> Graph:
    rows = [number(storage, each) for each in shown]
    with storage.archives.reading() as view:
        return view.graph(rows, depth, most)


@pytest.mark.parametrize(
    ("link", "target", "confidence"),
    [
        ("[a](b.md)", {"id_": "sub/b.md"}, 1.0),
        ("[a](b)", {"id_": "sub/b.md"}, 1.0),
        ("[a](b.html#part)", {"id_": "sub/b.md"}, 1.0),
        ("[a](../other/b%20c.md?x=1)", {"id_": "other/b c.md"}, 1.0),
        ("[a](../other/)", {"id_": "other/index.md"}, 1.0),
        ("[a](../other)", {"id_": "other/README.md"}, 1.0),
        ("[a](/other/b)", {"id_": "other/b.md"}, 1.0),
        ("[a](/guide/start/)", {"id_": "x.md", "metadata": {"slug": "guide/start"}}, 1.0),
        ("[a](/guide/start)", {"id_": "x.md", "metadata": {"permalink": "/guide/start.html"}}, 1.0),
        ("[a](/en-US/docs/Web/API)", {"id_": "x.md", "metadata": {"slug": "Web/API"}}, 0.9),
        ("[a](http://www.example.com/p/?utm_source=z#f)", {"id_": "x.md", "url": "https://example.com/p"}, 1.0),
        ("[a](https://example.com/p?b=2&a=1)", {"id_": "x.md", "url": "https://example.com/p.html?a=1&b=2"}, 1.0),
        ("https://EXAMPLE.com/p.", {"id_": "x.md", "metadata": {"canonical_url": "http://example.com/p/"}}, 0.8),
        ("doi:10.1000/AB.1", {"id_": "x.md", "metadata": {"doi": "10.1000/ab.1"}}, 0.9),
        ("[a](https://doi.org/10.1000/ab)", {"id_": "x.md", "metadata": {"doi": "https://dx.doi.org/10.1000/AB"}}, 1.0),
        ("arXiv:2210.11934v3", {"id_": "x.md", "url": "https://arxiv.org/abs/2210.11934v1"}, 0.9),
        ("[a](https://arxiv.org/pdf/2210.11934)", {"id_": "x.md", "metadata": {"arxiv": "2210.11934"}}, 1.0),
        ("[[the  Title]]", {"id_": "x.md", "title": "The title"}, 0.95),
        ("[[my_note]]", {"id_": "deep/My Note.md", "title": "Else"}, 0.95),
        ("[[Other Name]]", {"id_": "x.md", "metadata": {"aliases": ["other name"]}}, 0.855),
        ("[[deep/note]]", {"id_": "deep/note.md", "title": "Else"}, 0.95),
    ],
)
def test_a_citation_finds_its_document(
    storage: AnyStorage, link: str, target: dict[str, Any], confidence: float
) -> None:
    wanted = citing(**target)
    fill(storage, citing("sub/a.md", link), wanted, citing("unrelated.md"))
    assert cited_by(storage, "notes/sub/a.md") == [(f"notes/{wanted.document.id}", confidence)]


@pytest.mark.parametrize("first", ["citing", "cited"])
def test_the_order_of_arrival_makes_no_difference(storage: AnyStorage, first: str) -> None:
    documents = [citing("a.md", "[b](b.md)"), citing("b.md")]
    for document in documents if first == "citing" else reversed(documents):
        fill(storage, document)
    assert cited_by(storage, "notes/a.md") == [("notes/b.md", 1.0)]
    assert [each.source for each in references(storage, "notes/b.md").cited] == ["notes/a.md"]


def test_a_missing_document_may_arrive_in_another_collection(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[[Topic]] and https://example.com/b"))
    assert cited_by(storage, "notes/a.md") == [(None, 0.95), (None, 0.8)]
    web = citing("b.md", title="Topic", url="https://example.com/b", collection="web", source="url")
    fill(storage, web, collection="web")
    assert cited_by(storage, "notes/a.md") == [("web/b.md", 0.95), ("web/b.md", 0.8)]


def test_a_better_answer_takes_the_place_of_one_that_came_earlier(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[[Topic]]"))
    fill(storage, citing("b.md", title="Topic", collection="web"), collection="web")
    fill(storage, citing("c.md", title="Topic"))
    assert cited_by(storage, "notes/a.md") == [("notes/c.md", 0.95)]


def test_edges_to_a_document_that_goes_wait_again(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[b](b.md) [[Topic]]"), citing("b.md", title="Topic"), citing("c.md", title="Topic"))
    assert cited_by(storage, "notes/a.md") == [("notes/b.md", 1.0), ("notes/b.md", 0.95)]
    storage.documents.remove_documents("notes", ["b.md"])
    assert cited_by(storage, "notes/a.md") == [(None, 1.0), ("notes/c.md", 0.95)]
    fill(storage, citing("b.md"))
    assert cited_by(storage, "notes/a.md") == [("notes/b.md", 1.0), ("notes/c.md", 0.95)]


def test_a_document_that_changes_its_name_or_its_links_is_followed(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[[New]]"), citing("b.md", title="Old"))
    fill(storage, citing("b.md", title="New"))
    assert cited_by(storage, "notes/a.md") == [("notes/b.md", 0.95)]
    fill(storage, citing("a.md", "[[Old]]"))
    assert cited_by(storage, "notes/a.md") == [(None, 0.95)]
    fill(storage, citing("a.md", "Nothing."))
    assert cited_by(storage, "notes/a.md") == []


def test_a_removed_collection_leaves_no_citations(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[b](b.md) https://example.com"), citing("b.md", "[a](a.md)"))
    storage.documents.remove_collection("notes")
    with storage.database.reading() as connection:
        for table in ("citations", "citation_wishes", "citation_names", "citation_prints"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_text_that_is_put_again_leaves_its_citations_alone(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[b](b.md)"), citing("b.md"))
    rows = "SELECT * FROM citations, citation_wishes, citation_names"
    with storage.database.reading() as connection:
        before = connection.execute(rows).fetchall()
    fill(storage, citing("a.md", "[b](b.md)"), citing("b.md"))
    with storage.database.reading() as connection:
        assert connection.execute(rows).fetchall() == before


def test_what_a_reference_shows(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "First. See arXiv:2210.11934 there. Last."))
    (reference,) = references(storage, "notes/a.md").citing
    assert (reference.source, reference.target, reference.url) == (
        "notes/a.md",
        None,
        "https://arxiv.org/abs/2210.11934",
    )
    assert (reference.context, reference.confidence) == ("See arXiv:2210.11934 there.", 0.9)


def test_references_are_bounded_and_say_how_many_more_there_are(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "\n\n".join(f"https://example.com/{n}" for n in range(7)) + "\n\n[b](b.md)"))
    found = references(storage, "notes/a.md", 3)
    assert (len(found.citing), found.more) == (3, 5)
    assert found.citing[0].url == "b.md"  # the surest first


def test_the_graph_grows_level_by_level_in_both_directions(storage: AnyStorage) -> None:
    fill(
        storage,
        citing("a.md", "[b](b.md) https://example.com/out"),
        citing("b.md", "[c](c.md)"),
        citing("c.md", "[d](d.md)"),
        citing("d.md"),
        citing("in.md", "[a](a.md)"),
        citing("far.md", "[in](in.md)"),
    )
    levels = [
        {node.id.removeprefix("notes/"): node.kind for node in graph(storage, "notes/a.md", depth=depth).nodes}
        for depth in (1, 2, 3)
    ]
    assert levels[0] == {
        "a.md": "source",
        "b.md": "target",
        "in.md": "target",
        "https://example.com/out": "external",
    }
    assert levels[1].keys() - levels[0].keys() == {"c.md", "far.md"}
    assert levels[2].keys() - levels[1].keys() == {"d.md"}
    edges = {(edge.source, edge.target, edge.confidence) for edge in graph(storage, "notes/a.md").edges}
    assert edges == {
        ("notes/a.md", "notes/b.md", 1.0),
        ("notes/in.md", "notes/a.md", 1.0),
        ("notes/a.md", "https://example.com/out", 0.8),
    }


def test_one_address_is_one_node_however_it_is_written(storage: AnyStorage) -> None:
    fill(
        storage,
        citing("a.md", "https://example.com/p"),
        citing("b.md", "[p](http://www.example.com/p/#x)"),
    )
    outside = [node for node in graph(storage, "notes/a.md", "notes/b.md").nodes if node.kind == "external"]
    assert [(node.id, node.url) for node in outside] == [("https://example.com/p", "https://example.com/p")]


def test_a_large_graph_keeps_the_surest_nodes_and_says_so(storage: AnyStorage) -> None:
    sure = " ".join(f"[s](s{n}.md)" for n in range(5))
    unsure = " ".join(f"https://example.com/{n}" for n in range(50))
    fill(storage, citing("a.md", sure, unsure), *(citing(f"s{n}.md", "[more](x/y.md)") for n in range(5)))
    small = graph(storage, "notes/a.md", depth=2, most=6)
    assert {node.id for node in small.nodes} == {"notes/a.md", *(f"notes/s{n}.md" for n in range(5))}
    assert small.truncated
    assert not graph(storage, "notes/a.md", depth=1, most=56).truncated


def test_a_document_that_links_to_itself_does_not_cite_itself(storage: AnyStorage) -> None:
    fill(storage, citing("a.md", "[again](a.md#part)"))
    assert references(storage, "notes/a.md") == References((), (), 0)
    assert graph(storage, "notes/a.md").edges == ()
