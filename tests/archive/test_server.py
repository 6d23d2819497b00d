"""The archive as a real child, spoken to by the SDK's client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, MCPError, StdioServerParameters

CHILD = ("-P", "-m", "pointsman.archive")
MODES: tuple[Literal["legacy", "auto"], ...] = ("legacy", "auto")


@asynccontextmanager
async def archive(mode: Literal["legacy", "auto"], env: Mapping[str, str] | None = None) -> AsyncIterator[Client]:
    child = StdioServerParameters(command=sys.executable, args=list(CHILD), env=dict(env or {}))
    async with asyncio.timeout(20), Client(child, mode=mode) as client:
        yield client


async def status(client: Client) -> dict[str, Any]:
    answer = await client.call_tool("archive_status", {})
    assert not answer.is_error
    content: dict[str, Any] | None = answer.structured_content
    assert content is not None
    return content


@pytest.mark.parametrize("mode", MODES)
async def test_it_offers_one_tool_in_both_eras_and_says_what_it_cannot_do(mode: Literal["legacy", "auto"]) -> None:
    async with archive(mode) as client:
        tools = (await client.list_tools()).tools
        said = await status(client)
    assert [tool.name for tool in tools] == ["archive_status"]
    assert said["searchable"] is False
    assert "no search tools yet" in said["message"]
    assert (said["database"], said["roots"]) == ("not configured", {})


async def test_it_tells_which_roots_and_database_exist_without_telling_where(tmp_path: Path) -> None:
    roots = {"app": str(tmp_path), "gone": str(tmp_path / "gone")}
    env = {"POINTSMAN_ARCHIVE_ROOTS": json.dumps(roots), "SEARCH_DB_PATH": str(tmp_path / "search.db")}
    async with archive("auto", env) as client:
        before = await status(client)
        (tmp_path / "search.db").touch()
        after = await status(client)
    assert before["roots"] == {"app": "present", "gone": "missing"}
    assert (before["database"], after["database"]) == ("missing", "present")
    assert str(tmp_path) not in json.dumps(after)


async def test_an_unknown_tool_is_refused_by_name() -> None:
    async with archive("auto") as client:
        with pytest.raises(MCPError, match="No tool `search`"):
            await client.call_tool("search", {})


async def test_roots_that_cannot_be_read_end_it_with_a_sentence() -> None:
    code, stderr = await run_to_its_end({"POINTSMAN_ARCHIVE_ROOTS": "{"})
    assert code == 2
    assert stderr.startswith("pointsman.archive: POINTSMAN_ARCHIVE_ROOTS ")
    assert "Traceback" not in stderr


async def test_it_ends_in_silence_when_its_input_ends() -> None:
    assert await run_to_its_end({}) == (0, "")


async def run_to_its_end(env: Mapping[str, str]) -> tuple[int | None, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, *CHILD, env=env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await asyncio.wait_for(child.communicate(), 20)
    return child.returncode, stderr.decode()
