"""The line that each call leaves in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pointsman.archive.server.calls import log_call


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pointsman.archive")


@pytest.mark.parametrize(
    ("tool", "arguments", "result", "line"),
    [
        ("search_index", {"query": 'a "b c"', "k": 5}, {"results": [1, 2]}, r'query="a \"b c\"" ok results=2'),
        ("grep_codebase", {"pattern": "jwt"}, {"matches": [], "totalMatches": 0}, 'pattern="jwt" ok results=0'),
        ("read_file", {"path": "a.py"}, {"file": {}}, 'path="a.py" ok results=1'),
        ("context_search", {"query": 7}, None, 'query="7" failed results=-'),
        ("documents_list_collections", {}, {"collections": [1]}, " ok results=1"),
    ],
)
def test_it_tells_what_was_asked_what_came_of_it_how_long_it_took_and_how_large_it_was(
    tool: str, arguments: dict[str, Any], result: dict[str, Any] | None, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_call(tool, arguments, result, 0.0123, 456)
    assert caplog.messages == [f"{tool} {line} ms=12.3 bytes=456"]


def test_what_was_asked_is_cut_and_can_forge_no_line(caplog: pytest.LogCaptureFixture) -> None:
    log_call("search_index", {"query": "a\nERROR forged\x1b[31m\u202e" + "x" * 5_000}, {"results": []}, 0.0, 1)
    [line] = caplog.messages
    assert len(line) < 300
    assert line.isprintable()


@pytest.mark.parametrize(
    ("tool", "arguments", "longest_s"),
    [
        ("context_search", {}, 5.0),
        ("read_file", {"includeDeps": False}, 0.5),
        ("read_file", {"includeDeps": True}, 2.0),
        ("grep_codebase", {}, 3.0),
    ],
)
def test_a_call_beyond_its_longest_time_is_worth_a_warning(
    tool: str, arguments: dict[str, Any], longest_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    log_call(tool, arguments, {}, longest_s - 0.01, 1)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    log_call(tool, arguments, {}, longest_s + 0.01, 1)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING"]
    assert f"expected at most {longest_s} s" in caplog.messages[-1]
