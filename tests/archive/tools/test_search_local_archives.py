"""`searchLocalArchives` as its specification has it, over stdio in both eras and through a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pointsman.archive.citations.extract import citations_of
from pointsman.archive.model.documents import PreparedDocument
from pointsman.archive.shipped import COLLECTION, ensure_pages
from tests.archive.engines import Place
from tests.archive.harness import STORE_WAYS, Caller, Json, opened, place_for
from tests.archive.sample_documents import fill, prepared

NAME = "searchLocalArchives"
INTRO = "research-archive/2025-05-20/machine_learning_intro.md"
CONTEXT = "For more information on ML algorithms, see [this resource](https://example.com/ml-algorithms)."


def citing(id_: str, *texts: str, **more: Any) -> PreparedDocument:
    made = prepared(id_, *texts, **more)
    return replace(made, citations=citations_of(made.document.content))


def fill_store(place: Place) -> None:
    storage = place.open()
    ensure_pages(storage)
    storage.documents.remove_collection(COLLECTION)  # what is removed does not come again
    fill(
        storage,
        citing(
            INTRO,
            "Machine learning is a subset of artificial intelligence.",
            CONTEXT,
            title="Introduction to Machine Learning",
            date="2025-05-20",
        ),
        citing("cooking.md", "How to bake bread, as [they say](https://example.com/bread).", title="Cooking"),
    )
    page = citing(
        "ml-algorithms.html",
        "Trees, forests and nets; see also arXiv:1706.03762.",
        title="Algorithms",
        url="https://www.example.com/ml-algorithms/",
        source="url",
        date="2025-05-21T08:00:00Z",
        collection="web",
    )
    fill(storage, page, collection="web")
    storage.close()


@pytest.fixture(scope="module", params=STORE_WAYS)
async def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("archive")
    place = place_for(request, folder)
    fill_store(place)
    async with opened(request.param, folder, place=place) as caller:
        yield caller


def ids(answer: Json) -> list[str]:
    return [result["document"]["id"] for result in answer["results"]]


async def test_the_example_of_the_specification(archive: Caller) -> None:
    answer = await archive.result(NAME, query="machine learning", fuzzy=True, includeCitations=True, limit=5)
    result = answer["results"][0]
    score = result["document"].pop("score")
    assert 0.5 < score <= 1
    assert result["document"] == {
        "id": f"notes/{INTRO}",
        "title": "Introduction to Machine Learning",
        "path": INTRO,
        "source": "research",
        "date": "2025-05-20",
    }
    assert result["highlights"] == [
        {"field": "title", "snippets": ["Introduction to <mark>Machine Learning</mark>"]},
        {
            "field": "content",
            "snippets": ["<mark>Machine learning</mark> is a subset of artificial intelligence."],
        },
    ]
    assert result["citations"] == {
        "citing": [
            {
                "sourceId": f"notes/{INTRO}",
                "targetId": "web/ml-algorithms.html",
                "targetUrl": "https://example.com/ml-algorithms",
                "context": CONTEXT,
                "confidence": 1.0,
            }
        ],
        "cited": [],
    }
    assert answer["citationGraph"] == {
        "nodes": [
            {"id": f"notes/{INTRO}", "label": "Introduction to Machine Learning", "type": "source"},
            {"id": "web/ml-algorithms.html", "label": "Algorithms", "type": "target"},
        ],
        "edges": [{"from": f"notes/{INTRO}", "to": "web/ml-algorithms.html", "confidence": 1.0}],
        "truncated": False,
    }
    assert answer["metadata"] == {
        "totalResults": 1,
        "query": "machine learning",
        "fuzzy": True,
        "includeCitations": True,
        "citationDepth": 1,
        "limit": 5,
        "totalMatches": 1,
    }


async def test_without_options_there_are_ten_results_at_most_and_no_citations(archive: Caller) -> None:
    answer = await archive.result(NAME, query="machine learning")
    assert "citations" not in answer["results"][0]
    assert "citationGraph" not in answer
    metadata = answer["metadata"]
    assert (metadata["fuzzy"], metadata["includeCitations"], metadata["citationDepth"], metadata["limit"]) == (
        True,
        False,
        1,
        10,
    )


async def test_the_page_says_who_cites_it_and_depth_leads_further(archive: Caller) -> None:
    answer = await archive.result(NAME, query="forests", includeCitations=True)
    (result,) = answer["results"]
    assert result["document"]["source"] == "url"
    assert [each["sourceId"] for each in result["citations"]["cited"]] == [f"notes/{INTRO}"]
    assert result["citations"]["citing"][0]["targetId"] is None
    assert result["citations"]["citing"][0]["targetUrl"] == "https://arxiv.org/abs/1706.03762"
    outside = [node for node in answer["citationGraph"]["nodes"] if node["type"] == "external"]
    assert outside == [
        {
            "id": "https://arxiv.org/abs/1706.03762",
            "label": "https://arxiv.org/abs/1706.03762",
            "type": "external",
            "url": "https://arxiv.org/abs/1706.03762",
        }
    ]
    intro = await archive.result(NAME, query="intelligence", includeCitations=True, citationDepth=2)
    assert outside[0] in intro["citationGraph"]["nodes"]


async def test_a_slip_is_found_and_said(archive: Caller) -> None:
    answer = await archive.result(NAME, query="machine lerning")
    assert ids(answer) == [f"notes/{INTRO}"]
    assert answer["metadata"]["corrections"] == [{"word": "lerning", "to": ["learning"]}]
    assert answer["metadata"]["didYouMean"] == "machine learning"
    strict = await archive.result(NAME, query="lerning", fuzzy=False)
    assert strict["results"] == []
    assert "corrections" not in strict["metadata"]


@pytest.mark.parametrize("query", ["", "   ", "zzzzzz", '"', "NEAR(*"])
async def test_a_query_that_finds_nothing_is_an_ordinary_empty_result(archive: Caller, query: str) -> None:
    answer = await archive.result(NAME, query=query, includeCitations=True)
    assert answer["results"] == []
    assert "citationGraph" not in answer
    assert (answer["metadata"]["totalResults"], answer["metadata"]["query"]) == (0, query)


async def test_filters_alone_list_the_newest(archive: Caller) -> None:
    answer = await archive.result(NAME, query="collection:notes", limit=1)
    assert ids(answer) == [f"notes/{INTRO}"]
    assert answer["metadata"]["totalMatches"] == 2
    assert ids(await archive.result(NAME, query="source:url")) == ["web/ml-algorithms.html"]


async def test_a_filter_that_is_not_understood_is_said(archive: Caller) -> None:
    answer = await archive.result(NAME, query="bread after:yesterday")
    assert ids(answer) == ["notes/cooking.md"]
    assert "`after:yesterday` was ignored" in answer["metadata"]["notices"][0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "`query` must be a string; it is missing."),
        ({"query": 7}, "`query` must be a string; got 7."),
        ({"query": "x", "fuzzy": "yes"}, '`fuzzy` must be true or false; got "yes".'),
        ({"query": "x", "includeCitations": 1}, "`includeCitations` must be true or false; got 1."),
        ({"query": "x", "citationDepth": 0}, "`citationDepth` must be an integer from 1 to 3; got 0."),
        ({"query": "x", "citationDepth": 4}, "`citationDepth` must be an integer from 1 to 3; got 4."),
        ({"query": "x", "limit": 0}, "`limit` must be an integer from 1 to 50; got 0."),
        ({"query": "x", "limit": 51}, "`limit` must be an integer from 1 to 50; got 51."),
        ({"query": "x", "limit": 1.5}, "`limit` must be an integer from 1 to 50; got 1.5."),
    ],
)
async def test_a_parameter_out_of_range_fails_in_the_specifications_words(
    archive: Caller, arguments: Json, reason: str
) -> None:
    failure = await archive.failure(NAME, **arguments)
    assert failure.text == f"Failed to search local archives: {reason}"


async def test_a_store_that_cannot_be_read_fails_in_the_specifications_words(tmp_path: Path) -> None:
    (tmp_path / "archive.db").write_bytes(b"no database at all, but long enough to look like one" * 100)
    async with opened("modern", tmp_path) as archive:
        failure = await archive.failure(NAME, query="x")
    assert failure.text.startswith("Failed to search local archives: The archive's store archive.db is damaged")
    assert str(tmp_path) not in failure.text
