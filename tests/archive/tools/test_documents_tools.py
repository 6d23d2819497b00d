"""The documents tools, held to their specification as clients call them: over stdio in both eras, through a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from jsonschema_rs import validator_for

from pointsman.archive.embedding.passage_vectors import embed_passages as embed
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.documents import Document, Manifest, PreparedDocument
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.tools.registry import TOOLS
from tests.archive.engines import Place
from tests.archive.harness import STORE_WAYS, Caller, opened, place_for
from tests.archive.sample_documents import fill, prepared

GUIDE = """# Kitchen guide

Welcome to the kitchen.

## Baking

Preheat the oven before baking bread.

### Bread

Knead the dough for ten minutes.

### Cakes

Whisk eggs with sugar <script>alert("x")</script>.

## Cleaning

```
# not a heading
```

Wipe the counters with vinegar.

### Bread

Sweep up the crumbs.
"""
OUTPUT = {tool.name: validator_for(tool.output_schema) for tool in TOOLS}
HANDBOOK = {"collection": "handbook", "collectionId": "@acme/handbook"}


def written(id_: str, title: str, content: str) -> PreparedDocument:
    document = Document("@acme/handbook", id_, title, content, "research", "2024-05-31", tags=("home",))
    return PreparedDocument(document, chunks_of(content, title))


def make_store(place: Place) -> None:
    storage = place.open()
    manifest = Manifest("@acme/handbook", "handbook", "1.2.0", "How the house is run")
    storage.documents.put_collection(manifest)
    storage.documents.put_documents(
        "handbook",
        [
            written("guide/kitchen.md", "Kitchen guide", GUIDE),
            written("guide/garden.md", "Garden", "# Garden\n\nWater the roses every morning.\n"),
            written("guide/pantry.md", "Pantry", "# Pantry\n\nFlour, yeast and sugar for bread are on the shelf.\n"),
        ],
    )
    fill(storage, *(prepared(f"{number:03}.txt", f"entry {number}") for number in range(25)), collection="log")
    embed(storage, StaticEmbedding())
    storage.close()


@pytest.fixture(scope="module", params=STORE_WAYS)
async def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("archive")
    place = place_for(request, folder)
    make_store(place)
    async with opened(request.param, folder, place=place) as caller:
        yield caller


async def result(archive: Caller, name: str, **arguments: Any) -> dict[str, Any]:
    found = await archive.result(name, **arguments)
    OUTPUT[name].validate(found)
    return found


async def test_collections_are_listed_with_alias_description_version_and_count(archive: Caller) -> None:
    found = await result(archive, "documents_list_collections")
    assert {
        **HANDBOOK,
        "documentCount": 3,
        "description": "How the house is run",
        "version": "1.2.0",
    } in found["collections"]
    assert {"collection": "log", "documentCount": 25} in found["collections"]


async def test_statistics_are_added_where_they_are_asked_for(archive: Caller) -> None:
    assert "statistics" not in await result(archive, "documents_list_collections")
    found = (await result(archive, "documents_list_collections", statistics=True))["statistics"]
    assert found["passages"]["log"] >= 25
    assert found["bytes"] > 0
    assert set(found) == {"bytes", "passages", "vectors", "waiting", "embeddings", "problem", "ingest"}


async def test_documents_are_listed_with_titles_and_sizes(archive: Caller) -> None:
    found = await result(archive, "documents_list_documents", collection="handbook")
    assert found == {
        **HANDBOOK,
        "documents": [
            {"id": "guide/garden.md", "title": "Garden", "size": 41},
            {"id": "guide/kitchen.md", "title": "Kitchen guide", "size": len(GUIDE)},
            {"id": "guide/pantry.md", "title": "Pantry", "size": 61},
        ],
        "total": 3,
        "hasMore": False,
    }


async def test_lists_of_documents_are_paged(archive: Caller) -> None:
    first = await result(archive, "documents_list_documents", collection="log", limit=10, offset=10)
    assert [entry["id"] for entry in first["documents"]] == [f"{number:03}.txt" for number in range(10, 20)]
    assert (first["total"], first["hasMore"], first["notice"]) == (25, True, "Continue with offset 20.")
    last = await result(archive, "documents_list_documents", collection="log", limit=10, offset=20)
    assert (len(last["documents"]), last["hasMore"]) == (5, False)
    beyond = await result(archive, "documents_list_documents", collection="log", offset=99)
    assert (beyond["documents"], beyond["hasMore"]) == ([], False)
    assert "past the last" in beyond["notice"]


async def test_a_document_is_read_whole(archive: Caller) -> None:
    found = await result(archive, "documents_get_document", collection="handbook", document="guide/kitchen.md")
    assert found == {**HANDBOOK, "document": "guide/kitchen.md", "title": "Kitchen guide", "content": GUIDE}


async def test_the_outline_is_that_of_commonmark_and_as_deep_as_asked(archive: Caller) -> None:
    asked = {"collection": "@acme/handbook", "document": "guide/kitchen.md"}
    found = await result(archive, "documents_get_outline", **asked)
    assert [(entry["level"], entry["text"], entry["line"]) for entry in found["outline"]] == [
        (1, "Kitchen guide", 1),
        (2, "Baking", 5),
        (3, "Bread", 9),
        (3, "Cakes", 13),
        (2, "Cleaning", 17),
        (3, "Bread", 25),
    ]
    assert (found["title"], found["collection"]) == ("Kitchen guide", "handbook")
    shallow = await result(archive, "documents_get_outline", **asked, maxDepth=1)
    assert [entry["text"] for entry in shallow["outline"]] == ["Kitchen guide"]


async def test_a_section_is_read_with_or_without_what_is_below_it(archive: Caller) -> None:
    asked = {"collection": "handbook", "document": "guide/kitchen.md"}
    whole = await result(archive, "documents_get_section", **asked, section="baking")
    assert (whole["section"], whole["level"], whole["startLine"], whole["endLine"]) == ("Baking", 2, 5, 15)
    assert "Knead" in whole["content"]
    alone = await result(archive, "documents_get_section", **asked, section="Baking", includeSubsections=False)
    assert alone["content"] == "## Baking\n\nPreheat the oven before baking bread."


async def test_a_section_of_a_name_that_is_there_twice_can_be_addressed(archive: Caller) -> None:
    asked = {"collection": "handbook", "document": "guide/kitchen.md"}
    first = await result(archive, "documents_get_section", **asked, section="Bread")
    assert first["startLine"] == 9
    (other,) = first["candidates"]
    for address in (other, "Cleaning > Bread"):
        second = await result(archive, "documents_get_section", **asked, section=address)
        assert "crumbs" in second["content"]


async def test_search_finds_by_words_and_tells_where(archive: Caller) -> None:
    found = await result(archive, "documents_search", query="knead dough", limit=3)
    best = found["results"][0]
    assert best.pop("distance") < 1
    assert best.pop("content").endswith("Knead the dough for ten minutes.")
    assert best == {
        **HANDBOOK,
        "documentId": "guide/kitchen.md",
        "documentTitle": "Kitchen guide",
        "sectionHeading": "Bread",
        "relevanceScore": 1.0,
        "chunkIndex": 3,
        "totalChunks": 6,
    }


async def test_search_finds_by_meaning_within_collections_and_distance(archive: Caller) -> None:
    found = await result(
        archive, "documents_search", query="growing flowers", collections=["handbook"], hybridSearch=False, limit=2
    )
    assert found["results"][0]["documentId"] == "guide/garden.md"
    near = found["results"][0]["distance"]
    only = await result(
        archive,
        "documents_search",
        query="growing flowers",
        collections=["@acme/handbook"],
        hybridSearch=False,
        maxDistance=near + 0.0001,
    )
    assert [entry["documentId"] for entry in only["results"]] == ["guide/garden.md"]
    elsewhere = await result(archive, "documents_search", query="bread", collections=["log"])
    assert {entry["collection"] for entry in elsewhere["results"]} == {"log"}


async def test_the_query_language_works_in_search(archive: Caller) -> None:
    found = await result(archive, "documents_search", query="collection:handbook tag:HOME +oven -knead")
    assert [entry["sectionHeading"] for entry in found["results"]] == ["Baking"]
    none = await result(archive, "documents_search", query="bread collection:handbook after:2025")
    assert none["results"] == []
    told = await result(archive, "documents_search", query="bread after:soon", limit=1)
    assert "`after:soon` was ignored" in told["notice"]
    apart = await result(archive, "documents_search", query="collection:log bread", collections=["handbook"])
    assert apart["results"] == []


@pytest.mark.parametrize("query", ["?!", "(((", "-bread", "tag:home"])
async def test_a_query_without_a_word_to_look_for_is_an_ordinary_empty_result(archive: Caller, query: str) -> None:
    found = await result(archive, "documents_search", query=query)
    assert found["results"] == []
    assert "has only filters" in found["notice"]


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
async def test_an_empty_query_has_no_results_and_is_called_empty(archive: Caller, query: str) -> None:
    found = await result(archive, "documents_search", query=query)
    assert found["results"] == []
    assert found["notice"].startswith("The query is empty. ")
    [batched] = (await result(archive, "documents_search_batch", queries=[{"query": query}]))["results"]
    assert batched == {"query": query, **found}


@pytest.mark.parametrize("query", ['"', "a AND", "NEAR(", "x:y*", "^bread", "'; DROP TABLE documents; --", "\x00bread"])
async def test_syntax_of_a_database_is_only_text(archive: Caller, query: str) -> None:
    await result(archive, "documents_search", query=query)


async def test_text_with_html_comes_back_as_it_was_written(archive: Caller) -> None:
    found = await result(archive, "documents_search", query="whisk eggs", limit=1)
    assert '<script>alert("x")</script>' in found["results"][0]["content"]


async def test_a_batch_answers_each_query_in_order(archive: Caller) -> None:
    queries = [{"query": "vinegar counters"}, {"query": "entry 7", "collections": ["log"]}, {"query": ""}]
    found = await result(archive, "documents_search_batch", queries=queries, limit=2)
    assert [entry["query"] for entry in found["results"]] == ["vinegar counters", "entry 7", ""]
    assert found["results"][0]["results"][0]["sectionHeading"] == "Cleaning"
    assert found["results"][1]["results"][0]["documentId"] == "007.txt"
    assert [len(entry["results"]) for entry in found["results"]] == [2, 2, 0]


async def test_a_batch_has_one_to_ten_queries(archive: Caller) -> None:
    await result(archive, "documents_search_batch", queries=[{"query": "x"}] * 10)
    for queries in ([], [{"query": "x"}] * 11):
        failed = await archive.failure("documents_search_batch", queries=queries)
        assert "queries" in failed.text


async def test_related_content_is_of_other_documents_unless_asked(archive: Caller) -> None:
    asked = {"collection": "handbook", "document": "guide/kitchen.md"}
    found = await result(archive, "documents_find_related", **asked)
    assert found["source"] == {**HANDBOOK, "document": "guide/kitchen.md"}
    assert [entry["document"] for entry in found["related"]] == ["guide/pantry.md", "guide/garden.md"]
    itself = await result(archive, "documents_find_related", **asked, sameDocument=True, limit=1)
    assert itself["related"][0]["document"] == "guide/kitchen.md"
    chunk = await result(archive, "documents_find_related", **asked, chunk="watering plants", limit=1)
    assert chunk["related"][0]["document"] == "guide/garden.md"
    assert 0 < chunk["related"][0]["relevanceScore"] <= 1


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("documents_list_documents", {}),
        ("documents_get_document", {"document": "x"}),
        ("documents_get_outline", {"document": "x"}),
        ("documents_get_section", {"document": "x", "section": "x"}),
        ("documents_find_related", {"document": "x"}),
    ],
)
async def test_a_collection_that_is_not_there_is_answered_with_the_nearest(
    archive: Caller, name: str, more: dict[str, str]
) -> None:
    failed = await archive.failure(name, collection="handbok", **more)
    assert failed.json["error"] == 'Collection "handbok" not found.'
    assert '"handbook"' in failed.text


async def test_searching_a_collection_that_is_not_there_fails_by_its_name(archive: Caller) -> None:
    for arguments in ({"query": "x", "collections": ["nope"]}, {"query": "x collection:nope"}):
        failed = await archive.failure("documents_search", **arguments)
        assert failed.json["error"] == 'Collection "nope" not found.'


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("documents_get_document", {}),
        ("documents_get_outline", {}),
        ("documents_get_section", {"section": "x"}),
        ("documents_find_related", {}),
    ],
)
async def test_a_document_that_is_not_there_is_answered_with_the_nearest(
    archive: Caller, name: str, more: dict[str, str]
) -> None:
    failed = await archive.failure(name, collection="handbook", document="guide/kitchn.md", **more)
    assert failed.json["error"] == 'Document "guide/kitchn.md" not found in collection "handbook".'
    assert failed.json["candidates"][0] == "guide/kitchen.md"
    assert '"guide/kitchen.md"' in failed.text


async def test_a_section_that_is_not_there_is_answered_with_the_nearest(archive: Caller) -> None:
    failed = await archive.failure(
        "documents_get_section", collection="handbook", document="guide/kitchen.md", section="Cleanign"
    )
    assert failed.json["error"] == 'Section "Cleanign" not found in document "guide/kitchen.md".'
    assert failed.json["candidates"][0] == "Cleaning"


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("documents_search", {"query": "x", "limit": 0}, "limit"),
        ("documents_search", {"query": "x", "limit": 101}, "limit"),
        ("documents_search", {"query": "x", "maxDistance": 3}, "maxDistance"),
        ("documents_search", {}, "query"),
        ("documents_search", {"query": "x", "collections": "handbook"}, "collections"),
        ("documents_list_documents", {"collection": "log", "offset": -1}, "offset"),
        ("documents_get_outline", {"collection": "log", "document": "x", "maxDepth": 7}, "maxDepth"),
        ("documents_get_section", {"collection": "log", "document": "x"}, "section"),
        ("documents_find_related", {"collection": "log", "document": "x", "limit": "many"}, "limit"),
    ],
)
async def test_a_value_out_of_range_is_refused_by_name(
    archive: Caller, name: str, arguments: dict[str, Any], named: str
) -> None:
    failed = await archive.failure(name, **arguments)
    assert named in failed.text
