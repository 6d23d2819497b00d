"""Searches leave Pointsman's own documentation out once there is a collection of one's own, unless they name it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.archive.shipped import COLLECTION, ensure_pages
from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.engines import Place
from tests.archive.harness import Caller, opened
from tests.archive.sample_documents import fill, prepared

ABOUT_THE_MANUAL = "audit journal rows and metrics"
EMBEDDINGS = ("none", "static")


@pytest.fixture(scope="module", params=EMBEDDINGS)
async def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("archive")
    storage = SqliteStorage(folder / "archive.db")
    ensure_pages(storage)
    fill(storage, prepared("ledger.md", "The audit of the village hall found three rows of chairs missing."))
    storage.close()
    async with opened("modern", folder, env={"POINTSMAN_ARCHIVE_EMBEDDINGS": request.param}) as caller:
        yield caller


def collections(answer: dict[str, Any]) -> set[str]:
    return {result.get("collectionId", result["collection"]) for result in answer["results"]}


def documents(answer: dict[str, Any]) -> list[str]:
    return [result["document"]["id"] for result in answer["results"]]


async def test_a_search_that_names_no_collection_leaves_the_manual_out(archive: Caller) -> None:
    assert collections(await archive.result("documents_search", query=ABOUT_THE_MANUAL)) == {"notes"}
    assert collections(await archive.result("documents_search", query=f"{ABOUT_THE_MANUAL} -collection:x")) == {"notes"}
    batch = await archive.result("documents_search_batch", queries=[{"query": ABOUT_THE_MANUAL}])
    assert collections(batch["results"][0]) == {"notes"}
    for query in (ABOUT_THE_MANUAL, "after:2020"):
        found = await archive.result("searchLocalArchives", query=query)
        assert documents(found) == ["notes/ledger.md"]
        assert found["metadata"]["totalMatches"] == 1


@pytest.mark.parametrize("name", [COLLECTION, "pointsman"])
async def test_the_manual_is_searched_by_its_name(archive: Caller, name: str) -> None:
    named = await archive.result("documents_search", query=ABOUT_THE_MANUAL, collections=[name])
    assert collections(named) == {COLLECTION}
    asked_of_both = f"{ABOUT_THE_MANUAL} of the village hall"  # the manual has a hundred passages on audits
    both = await archive.result("documents_search", query=asked_of_both, collections=[name, "notes"], limit=100)
    assert collections(both) == {COLLECTION, "notes"}
    asked = await archive.result("documents_search", query=f"{ABOUT_THE_MANUAL} collection:{name}")
    assert collections(asked) == {COLLECTION}
    whole = await archive.result("searchLocalArchives", query=f"{ABOUT_THE_MANUAL} collection:{name}")
    assert documents(whole)
    assert all(each.startswith(f"{COLLECTION}/") for each in documents(whole))


async def test_it_is_still_listed_and_read(archive: Caller) -> None:
    listed = await archive.result("documents_list_collections")
    assert [each["collection"] for each in listed["collections"]] == ["notes", "pointsman"]
    assert (await archive.result("documents_get_document", collection="pointsman", document="README.md"))["content"]


async def test_in_a_new_store_and_beside_an_empty_collection_it_is_all_there_is(tmp_path: Path, place: Place) -> None:
    storage = place.open()
    ensure_pages(storage)
    fill(storage)
    storage.close()
    async with opened("modern", tmp_path) as archive:
        assert collections(await archive.result("documents_search", query=ABOUT_THE_MANUAL)) == {COLLECTION}
        assert documents(await archive.result("searchLocalArchives", query=ABOUT_THE_MANUAL))
