"""How often a tool may be called, by whom, and what is said when that is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.settings import SettingsError, read_settings
from pointsman.archive.tools.base import ToolError
from tests.archive.harness import opened

TOOLS = ("context_search", "read_file", "grep_codebase", "search_index")


def spent(limits: RateLimits, tool: str, caller: str, most: int = 200) -> int:
    """How many calls are let through until one is refused."""
    for count in range(most):
        try:
            limits.count(tool, caller)
        except ToolError:
            return count
    return most


def test_by_default_three_tools_are_limited_as_their_specification_says() -> None:
    limits = RateLimits(read_settings({}).rate_limits, TOOLS)
    assert {tool: spent(limits, tool, "me") for tool in TOOLS} == {
        "context_search": 30,
        "read_file": 100,
        "grep_codebase": 60,
        "search_index": 200,
    }


def test_settings_change_single_limits_and_zero_lifts_one() -> None:
    env = {"POINTSMAN_ARCHIVE_RATE_LIMITS": '{"context_search": 0, "search_index": 2}'}
    limits = RateLimits(read_settings(env).rate_limits, TOOLS)
    assert {tool: spent(limits, tool, "me") for tool in TOOLS} == {
        "context_search": 200,
        "read_file": 100,
        "grep_codebase": 60,
        "search_index": 2,
    }


def test_each_caller_and_each_tool_is_counted_alone() -> None:
    limits = RateLimits({"read_file": 2, "grep_codebase": 2}, TOOLS)
    assert spent(limits, "read_file", "me") == 2
    assert spent(limits, "read_file", "you") == 2
    assert spent(limits, "grep_codebase", "me") == 2
    assert spent(limits, "read_file", "me") == 0


def test_a_refusal_says_how_long_to_wait() -> None:
    limits = RateLimits({"read_file": 1}, TOOLS)
    limits.count("read_file", "me")
    with pytest.raises(ToolError) as refused:
        limits.count("read_file", "me")
    said = json.loads(refused.value.text)
    assert said["error"] == "Rate limit exceeded for read_file"
    assert said["code"] == "rate_limited"
    assert 1 <= said["retryAfterSeconds"] <= 60
    assert said["help"] == f"The limit is 1 calls a minute. Try again in {said['retryAfterSeconds']} s."


def test_a_limit_of_an_unknown_tool_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"RATE_LIMITS: no tool `grep`; the tools are context_search"):
        RateLimits({"grep": 1}, TOOLS)


async def test_a_call_over_the_limit_is_refused_by_the_server_itself(tmp_path: Path) -> None:
    env = {"POINTSMAN_ARCHIVE_RATE_LIMITS": '{"search_index": 1}'}
    async with opened("modern", tmp_path, env=env) as archive:
        await archive.result("search_index", query="x")
        answer = await archive.failure("search_index", query="x")
        await archive.result("search_add_document", doc_id="a", content="another tool")
    assert answer.json["error"] == "Rate limit exceeded for search_index"
