"""The tables of `pointsman tools test`: comparison with an earlier run, verdicts, and the summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.router.cli.common.options import ConfigCommandError
from pointsman.router.cli.common.replay import add_earlier, case_lines, read_earlier, summarize, summary_lines
from pointsman.router.owner.search.kept_cases import Case, add_ranks


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def _case(query: str, rank: int | None, worst_rank: int | None = 1, expected: str = "files:read") -> Case:
    return Case([query], [expected], worst_rank, ranks={"now": rank})


def _earlier(tmp_path: Path, *cases: Case) -> dict[str, int | None]:
    path = tmp_path / "before.json"
    path.write_text(json.dumps({"cases": [case.shown() for case in cases]}))
    return read_earlier(path)


def _row(cases: list[Case], query: str) -> list[str]:
    (line,) = [line for line in case_lines(cases) if line.startswith(query)]
    return line.removeprefix(query).split()


def test_requests_that_were_not_asked_earlier_are_new_and_do_not_count(tmp_path: Path) -> None:
    earlier = _earlier(tmp_path, _case("old", 4), _case("lost", None), _case("left out", 1))
    cases = [_case("fresh", 1), _case("old", 2), _case("lost", 1)]
    add_earlier(cases, earlier)
    assert next(iter(case_lines(cases))).split() == ["REQUEST", "EXPECTED", "BEFORE", "NOW"]
    assert _row(cases, "fresh")[1:] == ["new", "1"]
    assert _row(cases, "old")[1:3] == ["4", "2"]
    assert _row(cases, "lost")[1:] == ["-", "1"]
    summary = summarize(cases)
    assert list(summary) == ["before", "now"]
    assert (summary["before"]["found"], summary["now"]["first"]) == (0.5, 0.5)  # of `old` and `lost`


def test_without_a_common_request_the_summary_is_that_of_now(tmp_path: Path) -> None:
    cases = [_case("fresh", 1)]
    add_earlier(cases, _earlier(tmp_path, _case("old", 4)))
    assert "BEFORE  NOW" in next(iter(case_lines(cases)))
    assert _row(cases, "fresh")[1:] == ["new", "1"]
    assert list(summarize(cases)) == ["now"]
    assert "new" not in "".join(summary_lines(cases))


def test_an_earlier_run_that_is_not_there_and_one_that_is_no_such_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigCommandError, match=r"There is no .*nofile\.json"):
        read_earlier(tmp_path / "nofile.json")
    other = tmp_path / "other.json"
    rank_in_words = '{"cases": [{"queries": ["a"], "expected": ["b"], "ranks": {"now": "x"}}]}'
    for text in ("{", "[]", '{"cases": 7}', rank_in_words):
        other.write_text(text)
        with pytest.raises(ConfigCommandError, match=r"is not what `pointsman tools test --json` prints"):
            read_earlier(other)
    other.write_text("[" * 200_000)
    with pytest.raises(ConfigCommandError, match="is not what"):
        read_earlier(other)


def test_a_miss_names_the_server_that_does_not_run_and_its_state() -> None:
    cases = [_case("kept", None), _case("audited", None, worst_rank=None), _case("found", 1, expected="shop:paint")]
    add_ranks(cases, [None] * 3, {"files": "disabled", "shop": "failed"})
    assert " ".join(_row(cases, "kept")[2:]) == "missed: wanted 1 or better (server `files` is disabled)"
    assert " ".join(_row(cases, "audited")[2:]) == "not found (server `files` is disabled)"
    assert _row(cases, "found")[2:] == []


def test_a_request_that_the_audit_keeps_only_in_part_says_so() -> None:
    case = Case(["a long one"], ["files:read"], cut=True, ranks={"now": 7})
    assert " ".join(_row([case], "a long one")[2:]) == "cut in the audit"
    assert case.shown()["cut"] is True
    assert "cut" not in _case("short", 1).shown()
