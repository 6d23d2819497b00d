"""The archive as an MCP server: what it lists, how it answers, and what happens when a tool is slow or fails."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema_rs import validator_for
from mcp import MCPError
from mcp.types import TextContent

from pointsman.archive.server.calls import MAX_RESULT_BYTES, MAX_TEXT_BYTES
from pointsman.archive.server.server import THREADS_OF_ONE_TOOL
from pointsman.archive.store.errors import StoreLockedError
from pointsman.archive.tools.base import ToolError
from pointsman.archive.tools.registry import TOOLS
from pointsman.core.model import Json
from pointsman.core.seams import EXAMPLE_REQUESTS
from tests.archive.harness import CHILD, over_stdio
from tests.archive.server.in_process import serving, tool

WAIT_S = 60.0  # a bound against hanging
MIN_EXAMPLES = 50


def text(answer: Any) -> str:
    [block] = answer.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("way", ["legacy", "modern"])
async def test_every_tool_is_listed_with_schemas_and_hints_in_both_eras(
    way: Literal["legacy", "modern"], tmp_path: Path
) -> None:
    async with asyncio.timeout(60), over_stdio(way, {"SEARCH_DB_PATH": str(tmp_path / "a.db")}) as caller:
        listed = (await caller.client.list_tools()).tools
    assert [entry.name for entry in listed] == [entry.name for entry in TOOLS]
    for entry in listed:
        assert len(entry.description or "") > 50
        assert entry.meta is not None
        assert len(entry.meta[EXAMPLE_REQUESTS]) >= MIN_EXAMPLES
        assert entry.output_schema is not None
        assert entry.annotations is not None
        assert entry.annotations.read_only_hint is not None
        assert entry.annotations.idempotent_hint is not None
        for schema in (entry.input_schema, entry.output_schema):
            validator_for(schema, offline=True)  # raises where it is none


async def test_an_unknown_tool_is_refused_by_name() -> None:
    async with serving(tool("one", dict)) as client:
        with pytest.raises(MCPError, match=r"Unknown tool: search\. The archive has one") as refused:
            await client.call_tool("search", {})
    assert refused.value.error.data == {"tool": "search"}


async def test_a_failure_is_answered_with_its_text_and_its_fields() -> None:
    def fail(arguments: Json) -> Json:
        as_object = arguments["as_object"]
        raise ToolError("Index not found: x", code="not_found", help="Make it.", as_object=as_object, path="x")

    async with serving(tool("fail", fail)) as client:
        plain = await client.call_tool("fail", {"as_object": False})
        written = await client.call_tool("fail", {"as_object": True})
    assert plain.is_error
    assert written.is_error
    assert text(plain) == "Index not found: x Make it."
    assert json.loads(text(written)) == {
        "error": "Index not found: x",
        "path": "x",
        "tool": "fail",
        "code": "not_found",
        "help": "Make it.",
    }
    assert plain.structured_content == written.structured_content == json.loads(text(written))


async def test_trouble_with_the_store_is_answered_in_the_stores_words() -> None:
    def locked(_: Json) -> Json:
        raise StoreLockedError("The archive's store a.db is being written by another process. Try again in a moment.")

    async with serving(tool("locked", locked)) as client:
        answer = await client.call_tool("locked", {})
    assert answer.is_error
    assert text(answer).startswith("The archive's store a.db is being written")
    assert answer.structured_content == {"error": text(answer), "tool": "locked", "code": "store_unavailable"}


async def test_a_tool_that_breaks_is_a_plain_sentence_to_the_client_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: Json) -> Json:
        raise KeyError("/home/someone/secret")

    async with serving(tool("broken", broken)) as client:
        answer = await client.call_tool("broken", {})
        again = await client.call_tool("broken", {})
    assert answer.is_error
    assert again.is_error
    assert text(answer) == "broken failed unexpectedly; see the archive's log. Try again, or with other arguments."
    assert "secret" not in str(answer)
    assert "/home/someone/secret" in caplog.text


async def test_a_tool_that_hangs_holds_up_no_other_and_its_calls_can_be_given_up() -> None:
    inside, leave = threading.Semaphore(0), threading.Event()

    def hang(_: Json) -> Json:
        inside.release()
        leave.wait(WAIT_S)
        return {}

    try:
        async with asyncio.timeout(WAIT_S), serving(tool("hang", hang), tool("quick", dict)) as client:
            hanging = [asyncio.create_task(client.call_tool("hang", {})) for _ in range(2 * THREADS_OF_ONE_TOOL)]
            for _ in range(THREADS_OF_ONE_TOOL):
                await asyncio.to_thread(inside.acquire)
            assert not (await client.call_tool("quick", {})).is_error
            for call in hanging:
                call.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
            assert not (await client.call_tool("quick", {})).is_error
            leave.set()  # threads that hung serve again
            assert not (await client.call_tool("hang", {})).is_error
    finally:
        leave.set()


async def test_a_large_result_is_given_once_and_a_larger_one_refused() -> None:
    def large(arguments: Json) -> Json:
        return {"content": "x" * arguments["size"]}

    async with serving(tool("large", large)) as client:
        once = await client.call_tool("large", {"size": MAX_TEXT_BYTES})
        refused = await client.call_tool("large", {"size": MAX_RESULT_BYTES})
    assert not once.is_error
    assert once.structured_content is not None
    assert len(once.structured_content["content"]) == MAX_TEXT_BYTES
    assert "structuredContent" in text(once)
    assert refused.is_error
    assert "Narrow the request" in text(refused)


async def test_half_a_character_in_a_result_does_not_cost_the_answer() -> None:
    async with serving(tool("half", lambda _: {"content": "a\ud800b"})) as client:
        answer = await client.call_tool("half", {})
    assert answer.structured_content == {"content": "a?b"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POINTSMAN_ARCHIVE_ROOTS", "{"),
        ("POINTSMAN_ARCHIVE_RATE_LIMITS", '{"read_file": -1}'),
        ("POINTSMAN_ARCHIVE_RATE_LIMITS", '{"read_fil": 1}'),
        ("POINTSMAN_ARCHIVE_INDEX_LIMITS", '{"index": 1}'),
    ],
)
async def test_settings_that_cannot_be_understood_end_it_with_a_sentence(name: str, value: str) -> None:
    code, stderr = await run_to_its_end({name: value})
    assert code == 2
    assert stderr.startswith(f"pointsman.archive: {name}")
    assert "Traceback" not in stderr


async def test_it_ends_in_silence_when_its_input_ends() -> None:
    assert await run_to_its_end({}) == (0, "")


async def test_heavy_parts_are_loaded_only_when_a_tool_needs_them() -> None:
    script = (
        "import sys\n"
        "import pointsman.archive.server.server\n"
        "heavy = {'mcp', 'mcp_types', 'pydantic', 'asyncio', 'numpy', 'tokenizers', 'tree_sitter', 'limits'}\n"
        "heavy |= {'markdown_it', 'rapidfuzz', 'httpx2', 'watchfiles', 'sqlite3'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)\n"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", script, stderr=asyncio.subprocess.PIPE)
    _, stderr = await asyncio.wait_for(child.communicate(), WAIT_S)
    assert (child.returncode, stderr.decode()) == (0, "")


async def run_to_its_end(env: Mapping[str, str]) -> tuple[int | None, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, *CHILD, env=env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await asyncio.wait_for(child.communicate(), WAIT_S)
    return child.returncode, stderr.decode()
