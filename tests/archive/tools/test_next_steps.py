"""Every code of the archive's tools comes with a reason and a next step.

The codes are read from the source: one without a case here fails.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.archive.archive import Archive
from pointsman.archive.code.imports.parser import ImportParser
from pointsman.archive.server.calls import MAX_RESULT_BYTES, Answer, ToolRunner
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.store.errors import UnknownCollectionError
from pointsman.archive.tools.base import ArchiveTool, Call
from pointsman.archive.tools.registry import TOOLS
from pointsman.core.errors import BUNDLED_CODES
from pointsman.core.model import Json
from tests.archive.code.test_parser import program
from tests.archive.code.trees import write
from tests.archive.harness import opened
from tests.archive.tools.test_failures import FAILURES, project

NOTE = {"id": "one", "type": "rule", "content": "Quokkas are never fed"}
NOBODY = "http://127.0.0.1:9/v1"  # the discard port, where nothing listens

# For each code: what is wrong, and what to do next.
SAID = {
    "already_exists": ("Index already exists: default", "choose another name"),
    "embedding_failed": ("Failed to generate query embedding", "`results` has what text search found"),
    "file_not_found": ("File not found", "as grep_codebase shows them"),
    "internal_error": ("broken failed unexpectedly", "Try again, or with other arguments"),
    "invalid_parameters": ("`path` must be", "it is missing"),
    "limit_reached": ("which is the limit", "Use one of them"),
    "no_embeddings": ("No embeddings found", "Use grep_codebase for text search"),
    "not_configured": ("No roots configured", "The operator names the folders that may be read"),
    "not_found": ("Index not found: nowhere", "Create one with search_create_index"),
    "not_parsed": ("Failed to parse imports", "leave out includeDeps"),
    "not_text": ("Not a text file", "Read another file"),
    "permission_denied": ("Permission denied", "Read another file"),
    "rate_limited": ("Rate limit exceeded for search_index", "Try again in"),
    "result_too_large": ("The result is too large.", "Narrow the request"),
    "store_unavailable": ("is damaged or not a database", "restore a backup"),
    "timeout": ("parsing took too long", "leave out includeDeps"),
}


async def over_stdio(folder: Path, code: str) -> str:
    """The text of a failure that the archive as a program gives."""
    write(folder / "notes", {".context/notes.jsonl": json.dumps(NOTE)})
    dead = {"POINTSMAN_ARCHIVE_EMBEDDINGS": "openai-compatible", "POINTSMAN_ARCHIVE_EMBEDDINGS_MODEL": "any"}
    name, arguments, env, roots = {
        "embedding_failed": (
            "context_search",
            {"query": "quokkas"},
            {**dead, "POINTSMAN_ARCHIVE_EMBEDDINGS_URL": NOBODY},
            {"app": folder / "notes"},
        ),
        "limit_reached": (
            "search_create_index",
            {"index_name": "another", "backend": "memory"},
            {"POINTSMAN_ARCHIVE_INDEX_LIMITS": '{"indexes": 1}'},
            {},
        ),
        "rate_limited": (
            "search_index",
            {"query": "x", "index_name": "default"},
            {"POINTSMAN_ARCHIVE_RATE_LIMITS": '{"search_index": 1}'},
            {},
        ),
        "not_configured": ("read_file", {"path": "x"}, {}, {}),
        "store_unavailable": ("documents_list_collections", {}, {}, {}),
    }.get(code) or (*_first(code), {}, {"app": project(folder / "app")})
    if code == "store_unavailable":
        (folder / "archive.db").write_text("no database at all " * 100)
    async with opened("modern", folder, env=env, roots=roots) as archive:
        if code == "rate_limited":
            await archive.call(name, arguments)
        answer = await archive.failure(name, **arguments)
    assert answer.json["code"] == code
    return answer.text


def _first(code: str) -> tuple[str, Json]:
    preferred = {"invalid_parameters": "read_file", "not_found": "search_index"}
    return next(
        (name, arguments)
        for name, arguments, its in FAILURES
        if its == code and name == preferred.get(code, name) and arguments.get("path") != "/etc/passwd"
    )


def in_process(folder: Path, code: str) -> Answer:
    """Failures that need a tool, or a parser, of the test's own."""

    def run(archive: Archive, arguments: Json, call: Call) -> Json:
        if code == "internal_error":
            raise ZeroDivisionError
        return {"text": "x" * MAX_RESULT_BYTES}

    broken = ArchiveTool("broken", "", "", {}, {}, run)
    write(folder, {"slow.py": "import os\n"})
    parser = ImportParser(timeout_s=0.1, command=program("signal.pause()"))
    tools = {tool.name: tool for tool in (*TOOLS, broken)}
    runner = ToolRunner(Archive({"app": folder}, imports=parser), tools, RateLimits({}, tools))
    try:
        if code == "timeout":
            return runner.call("read_file", {"path": "slow.py", "includeDeps": True})
        return runner.call("broken", {})
    finally:
        runner.close()


@pytest.mark.parametrize("code", sorted(BUNDLED_CODES))
async def test_every_code_says_why_and_what_to_do(code: str, tmp_path: Path) -> None:
    reason, step = SAID[code]
    if code in ("internal_error", "result_too_large", "timeout"):
        answer = in_process(tmp_path, code)
        assert answer.structured["code"] == code
        text = answer.text
    else:
        text = await over_stdio(tmp_path, code)
    assert reason in text
    assert step in text


def test_every_case_is_of_a_code() -> None:
    assert SAID.keys() == BUNDLED_CODES


async def test_no_failure_is_without_a_next_step(tmp_path: Path) -> None:
    async with opened("modern", tmp_path, roots={"app": project(tmp_path / "app")}) as archive:
        for name, arguments, _ in FAILURES:
            answer = await archive.failure(name, **arguments)
            requirement = "must" in answer.text or "at least" in answer.text
            assert answer.json.get("help") or answer.json.get("fallback") or requirement, answer.text


def test_a_collection_that_is_gone_comes_with_the_tool_that_lists_them() -> None:
    def run(archive: Archive, arguments: Json, call: Call) -> Json:
        raise UnknownCollectionError("gone")

    tool = ArchiveTool("any", "", "", {}, {}, run)
    answer = ToolRunner(Archive({}), {"any": tool}, RateLimits({}, {"any": tool})).call("any", {})
    assert answer.text == 'Collection "gone" not found. Call documents_list_collections to see the collections.'
