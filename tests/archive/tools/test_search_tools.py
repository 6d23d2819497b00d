"""The specification of the search_* tools, point by point: over stdio in both eras, and through a gateway."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.archive.engines import new_store
from tests.archive.harness import STORE_WAYS, Caller, opened, place_for

LIMITS = {"indexes": 40, "documents": 30, "bytes": 2_000_000}
names = map("index{}".format, itertools.count())


@pytest.fixture(scope="module", params=STORE_WAYS)
async def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    env = {"POINTSMAN_ARCHIVE_INDEX_LIMITS": json.dumps(LIMITS)}
    folder = tmp_path_factory.mktemp("archive")
    async with opened(request.param, folder, env=env, place=place_for(request, folder)) as caller:
        yield caller


@pytest.fixture(params=["memory", "sqlite"])
async def index(request: pytest.FixtureRequest, archive: Caller) -> str:
    """The name of a new, empty index."""
    name = next(names)
    await archive.result("search_create_index", index_name=name, backend=request.param)
    return name


async def test_an_index_is_created_with_its_backend(archive: Caller) -> None:
    name = next(names)
    created = await archive.result(
        "search_create_index", index_name=name, tokenizer_config={"lowercase": True, "min_length": 3}
    )
    assert created == {
        "status": "created",
        "index_name": name,
        "backend": "memory",
        "tokenizer_config": {"lowercase": True, "min_length": 3},
    }
    added = await archive.result("search_add_document", doc_id="a", content="to be or not to BE", index_name=name)
    assert added["token_count"] == 1


async def test_a_name_that_is_taken_and_a_backend_that_is_unknown_are_refused_in_the_specifications_words(
    archive: Caller, index: str
) -> None:
    for backend in ("memory", "sqlite"):
        answer = await archive.failure("search_create_index", index_name=index, backend=backend)
        assert json.loads(answer.text)["error"] == f"Index already exists: {index}"
    taken = await archive.failure("search_create_index", index_name="default")
    assert json.loads(taken.text)["error"] == "Index already exists: default"
    for unknown in ("redis", 7):
        answer = await archive.failure("search_create_index", index_name=next(names), backend=unknown)
        assert json.loads(answer.text)["error"] == f"Unknown backend: {unknown}"


@pytest.mark.parametrize("name", ["", "two words", "../x", "a" * 65, "größe", "x\n", 5, None])
async def test_a_name_of_other_signs_is_refused(archive: Caller, name: Any) -> None:
    answer = await archive.failure("search_create_index", index_name=name)
    assert answer.json["error"] == "Invalid parameters"
    assert "`index_name` must be" in answer.text


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("x", "`tokenizer_config` must be an object"),
        ({"lowercase": "yes"}, "`tokenizer_config.lowercase` must be true or false"),
        ({"min_length": 0}, "`tokenizer_config.min_length` must be an integer from 1 to 20"),
        ({"min_length": "2"}, "`tokenizer_config.min_length` must be an integer from 1 to 20"),
        ({"min_length": True}, "`tokenizer_config.min_length` must be an integer from 1 to 20"),
    ],
)
async def test_a_tokenizer_that_does_not_fit_is_refused_by_its_key(archive: Caller, config: Any, said: str) -> None:
    answer = await archive.failure("search_create_index", index_name=next(names), tokenizer_config=config)
    assert said in answer.text


async def test_a_document_is_indexed_and_then_re_indexed(archive: Caller, index: str) -> None:
    document = {"doc_id": "doc-001", "content": "Python rate limiting with token buckets", "index_name": index}
    first = await archive.result("search_add_document", **document)
    assert first == {"status": "indexed", "doc_id": "doc-001", "token_count": 6}
    before = await archive.result("search_index", query="token", index_name=index)
    assert await archive.result("search_add_document", **document) == first | {"status": "re-indexed"}
    assert await archive.result("search_index", query="token", index_name=index) == before
    await archive.result("search_add_document", **document | {"content": "Something else"})
    assert (await archive.result("search_index", query="token", index_name=index))["total_matches"] == 0


@pytest.mark.parametrize("content", ["", "  \n\t ", None, 7, ["x"]])
async def test_blank_or_missing_content_is_refused_in_the_specifications_words(archive: Caller, content: Any) -> None:
    answer = await archive.failure("search_add_document", doc_id="a", content=content)
    assert json.loads(answer.text)["error"] == "Content must be a non-empty string"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"doc_id": "", "content": "x"}, "`doc_id` must be a string of 1 to 512 characters"),
        ({"content": "x"}, "`doc_id` must be a string of 1 to 512 characters; it is missing."),
        ({"doc_id": "a", "content": "x", "metadata": "x"}, "`metadata` must be an object"),
        ({"doc_id": "a", "content": "x", "metadata": {"x": "y" * 70_000}}, "`metadata` must take at most 65536 bytes"),
        ({"doc_id": "a", "content": "x", "index_name": 7}, "`index_name` must be a string"),
    ],
)
async def test_other_arguments_that_do_not_fit_are_named(archive: Caller, arguments: Any, said: str) -> None:
    assert said in (await archive.failure("search_add_document", **arguments)).text


async def test_a_search_ranks_scores_highlights_and_tells_how_it_read_the_query(archive: Caller, index: str) -> None:
    add = {"index_name": index}
    await archive.result("search_add_document", doc_id="a", content="Python for machine learning", **add)
    await archive.result(
        "search_add_document",
        doc_id="b",
        content="Machine learning with Python: <b>python</b> & more",
        metadata={"author": "Smith", "year": 2026},
        **add,
    )
    await archive.result("search_add_document", doc_id="c", content="The machine learned nothing of python", **add)
    found = await archive.result("search_index", query='+python "machine learning" -ruby', k=1, index_name=index)
    [best] = found["results"]
    assert (best["doc_id"], best["metadata"]) == ("b", {"author": "Smith", "year": 2026})
    assert best["score"] > 0
    assert best["highlights"] == ["Machine learning with Python: &lt;b&gt;python&lt;/b&gt; &amp; more"]
    assert found["total_matches"] == 2
    parsed = {"terms": [], "must": ["python"], "must_not": ["ruby"], "phrases": ["machine learning"]}
    assert found["query_parsed"] == parsed


@pytest.mark.parametrize("query", ["", "   "])
async def test_an_empty_query_is_an_empty_result(archive: Caller, query: str) -> None:
    found = await archive.result("search_index", query=query)
    assert (found["results"], found["total_matches"]) == ([], 0)
    assert "notice" not in found


@pytest.mark.parametrize("query", ["-python", "a", '"'])
async def test_a_query_that_looks_for_nothing_is_told_so(archive: Caller, query: str) -> None:
    found = await archive.result("search_index", query=query)
    assert (found["results"], found["total_matches"]) == ([], 0)
    assert found["notice"]


@pytest.mark.parametrize(
    "query",
    ['" OR 1=1 --', "a AND", "NEAR(x y)", "col:x ^y", "((((", "*", "'; DROP TABLE search_indexes;", "\x00\u202e"],
)
async def test_other_peoples_query_syntax_is_only_text(archive: Caller, index: str, query: str) -> None:
    assert (await archive.result("search_index", query=query, index_name=index))["total_matches"] == 0


async def test_an_unknown_index_is_not_found_in_the_specifications_words(archive: Caller) -> None:
    for name, arguments in (
        ("search_index", {"query": "x", "index_name": "nowhere"}),
        ("search_add_document", {"doc_id": "a", "content": "x", "index_name": "nowhere"}),
    ):
        answer = await archive.failure(name, **arguments)
        said = json.loads(answer.text)
        assert said["error"] == "Index not found: nowhere"
        assert "default" in said["help"]


@pytest.mark.parametrize("k", [0, 101, -1, "5", 2.5, True])
async def test_k_is_checked(archive: Caller, k: Any) -> None:
    answer = await archive.failure("search_index", query="x", k=k)
    assert answer.json["error"] == "Invalid parameters"
    assert "`k` must be an integer from 1 to 100" in answer.text


@pytest.mark.parametrize("query", [None, 7, "x" * 1001])
async def test_a_query_must_be_a_text_of_sane_length(archive: Caller, query: Any) -> None:
    assert (
        "`query` must be a string of 0 to 1000 characters" in (await archive.failure("search_index", query=query)).text
    )


async def test_a_document_that_does_not_fit_into_memory_is_refused_and_one_on_disk_is_not(archive: Caller) -> None:
    large = " ".join(f"word{number}" for number in range(6_000))
    name = next(names)
    await archive.result("search_create_index", index_name=name, backend="sqlite")
    if archive.way != "postgres":  # there no index is in memory
        answer = await archive.failure("search_add_document", doc_id="large", content=large)
        assert answer.json["error"] == "Index is full"
        assert "the limit is 2000000" in answer.text
    kept = await archive.result("search_add_document", doc_id="large", content=large, index_name=name)
    assert kept["token_count"] == 6_000


async def test_on_postgresql_every_index_is_found_by_the_next_archive(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = new_store(request, tmp_path, "postgres")
    async with (
        opened("modern", tmp_path, place=place) as first,
        opened("legacy", tmp_path, place=place) as second,
    ):
        await first.result("search_add_document", doc_id="a", content="in the default index")
        await first.result("search_create_index", index_name="mine", backend="memory")
        await second.result("search_add_document", doc_id="b", content="in the other one", index_name="mine")
        assert (await second.result("search_index", query="default"))["total_matches"] == 1
        assert (await first.result("search_index", query="other", index_name="mine"))["total_matches"] == 1
        taken = await second.failure("search_create_index", index_name="default")
    assert taken.json["error"] == "Index already exists: default"


async def test_a_sqlite_index_is_there_again_after_a_restart_and_one_in_memory_is_not(tmp_path: Path) -> None:
    async with opened("modern", tmp_path) as first:
        for backend in ("memory", "sqlite"):
            await first.result("search_create_index", index_name=backend, backend=backend)
            await first.result("search_add_document", doc_id="a", content="kept or not", index_name=backend)
    async with opened("legacy", tmp_path) as second:
        assert (await second.result("search_index", query="kept", index_name="sqlite"))["total_matches"] == 1
        gone = await second.failure("search_index", query="kept", index_name="memory")
    assert gone.json["error"] == "Index not found: memory"
