"""`context_search` as clients call it, with the examples of its specification."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.archive.harness import STORE_WAYS, Caller, Json, opened, place_for

NOTES: tuple[Json, ...] = (
    {
        "id": "jwt",
        "type": "pattern",
        "module": "auth",
        "session": "s1",
        "date": "2025-01-15T10:00:00Z",
        "content": "Use JWT tokens stored in httpOnly cookies for auth",
    },
    {
        "id": "mutex",
        "type": "pattern",
        "module": "auth",
        "content": "Implement token refresh with mutex locks to prevent race conditions",
    },
    {"id": "race", "type": "issue", "module": "auth", "content": "Token refresh race condition fixed with mutex lock"},
    {"id": "postgres", "type": "decision", "content": "We chose PostgreSQL over MongoDB because reports need joins"},
    {"id": "long", "type": "rule", "content": "Quokkas are never fed. " * 200},
)


@pytest.fixture(scope="module", params=STORE_WAYS)
async def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("archive")
    project = folder / "app"
    (project / ".context").mkdir(parents=True)
    (project / ".context" / "notes.jsonl").write_text("\n".join(map(json.dumps, NOTES)))
    (project / "src" / "storage").mkdir(parents=True)
    (project / "src" / "storage" / "pool.py").write_text("POOL = 5\n")
    limits = {"POINTSMAN_ARCHIVE_RATE_LIMITS": '{"context_search": 0}'}
    place = place_for(request, folder)
    async with opened(request.param, folder, roots={"app": project}, env=limits, place=place) as caller:
        await until_embedded(caller)
        yield caller


async def until_embedded(archive: Caller) -> None:
    """Words answer until the vectors are there, with a notice."""
    async with asyncio.timeout(60):
        while "notice" in await archive.result("context_search", query="token refresh"):
            await asyncio.sleep(0.1)


async def test_a_general_search_ranks_what_fits(archive: Caller) -> None:
    found = await archive.result("context_search", query="how does authentication work", type="all", limit=5)
    assert found["results"][0]["id"] in ("jwt", "mutex")
    assert found["query"] == "how does authentication work"
    assert found["totalFound"] >= len(found["results"]) > 0
    assert isinstance(found["searchTime"], int)


async def test_a_result_has_the_fields_of_the_specification(archive: Caller) -> None:
    found = await archive.result("context_search", query="JWT authentication in cookies", limit=1)
    [result] = found["results"]
    score = result.pop("score")
    assert 0 < score <= 1
    assert result == {
        "id": "jwt",
        "type": "pattern",
        "content": "Use JWT tokens stored in httpOnly cookies for auth",
        "module": "auth",
        "session": "s1",
        "date": "2025-01-15T10:00:00Z",
        "source": "discovery",
    }


async def test_type_and_module_filter_first(archive: Caller) -> None:
    found = await archive.result("context_search", query="token refresh issue", type="issue", module="auth", limit=3)
    assert [result["id"] for result in found["results"]] == ["race"]
    none = await archive.result("context_search", query="token refresh issue", type="issue", module="nowhere")
    assert (none["results"], none["totalFound"]) == ([], 0)


async def test_decisions_are_found_by_meaning(archive: Caller) -> None:
    found = await archive.result("context_search", query="show me decisions about database choice")
    assert found["results"][0]["id"] == "postgres"


async def test_long_contents_are_shown_in_part_and_say_so(archive: Caller) -> None:
    found = await archive.result("context_search", query="feeding quokkas", limit=1)
    [result] = found["results"]
    assert (result["id"], len(result["content"]), result["truncated"]) == ("long", 2000, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"query": "ab"}, "Query must be at least 3 characters"),
        ({"query": "  a  "}, "Query must be at least 3 characters"),
        ({"query": "x" * 501}, "Query must be at most 500 characters"),
        ({}, "Invalid parameters"),
        ({"query": 7}, "Invalid parameters"),
        ({"query": "abc", "type": "law"}, "Invalid parameters"),
        ({"query": "abc", "limit": 0}, "Invalid parameters"),
        ({"query": "abc", "limit": 21}, "Invalid parameters"),
        ({"query": "abc", "limit": True}, "Invalid parameters"),
        ({"query": "abc", "module": 3}, "Invalid parameters"),
    ],
)
async def test_bad_arguments_are_named(archive: Caller, arguments: dict[str, object], error: str) -> None:
    answer = await archive.failure("context_search", **arguments)
    assert answer.json["error"] == error
    assert answer.text.startswith('{"error": "' + error)
    if "query" not in arguments:
        assert "3 to 500 characters" in answer.text


async def test_an_empty_context_says_how_to_fill_it(tmp_path: Path) -> None:
    async with opened("modern", tmp_path) as archive:
        answer = await archive.failure("context_search", query="anything at all")
    assert answer.json["error"] == "No embeddings found. Run initial session to generate context."
    assert answer.json["fallback"] == "Use grep_codebase for text search"
    assert "pointsman archive context add" in answer.json["help"]


@pytest.mark.parametrize("recorded", [True, False])
async def test_without_an_embedding_provider_an_empty_search_says_that_there_are_no_embeddings(
    recorded: bool, tmp_path: Path
) -> None:
    project = tmp_path / "app"
    (project / ".context").mkdir(parents=True)
    if recorded:
        (project / ".context" / "notes.jsonl").write_text("\n".join(map(json.dumps, NOTES)))
    env = {"POINTSMAN_ARCHIVE_EMBEDDINGS": "none"}
    async with opened("modern", tmp_path, roots={"app": project}, env=env) as archive:
        async with asyncio.timeout(60):
            while recorded and (await archive.call("context_search", {"query": "token refresh"})).failed:
                await asyncio.sleep(0.1)
        answer = await archive.failure("context_search", query="zeppelin maintenance")
        found = await archive.call("context_search", {"query": "token refresh"})
    assert json.loads(answer.text) == answer.json
    assert answer.json["error"] == "No embeddings available"
    assert answer.json["suggestion"] == "Use grep_codebase for text search"
    assert answer.json["action"] == "Embeddings will be generated in background"
    assert "POINTSMAN_ARCHIVE_EMBEDDINGS" in answer.json["help"]
    assert ("pointsman archive context add" in answer.json["help"]) != recorded
    assert found.failed != recorded


async def test_a_store_that_cannot_be_read_is_a_failed_search_with_a_way_on(tmp_path: Path) -> None:
    (tmp_path / "archive.db").write_text("no database at all " * 100)
    async with opened("modern", tmp_path) as caller:
        answer = await caller.failure("context_search", query="which database")
    assert json.loads(answer.text) == answer.json
    assert answer.json["error"] == "Search failed"
    assert "damaged" in answer.json["message"]
    assert str(tmp_path) not in answer.json["message"]
    assert answer.json["fallback"] == "Try using grep_codebase for text search"
