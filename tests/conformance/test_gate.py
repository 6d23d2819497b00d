"""The gate: it refuses what the suite calls a pass although nothing was checked, and expected failures that pass."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.__main__ import NOT_IN_LEGACY, Report, outdated, print_in_order, report_on, unchecked

SCENARIO = "sep-2640-skills-enumeration"


def verdict(folder: Path, checks: list[tuple[str, str]], without: tuple[str, ...] = ()) -> suite.Verdict:
    written = folder / f"server-{SCENARIO}-2026-11-17T04-00-00-000Z"
    written.mkdir()
    (written / "checks.json").write_text(json.dumps([{"id": name, "status": status} for name, status in checks]))
    return suite.read_verdict(folder, "", content=True, without=without)


def test_a_scenario_without_checks_is_refused(tmp_path: Path) -> None:
    assert unchecked(verdict(tmp_path, []), [SCENARIO], "2026-07-28") == [f"{SCENARIO}:every check"]


def test_a_scenario_whose_checks_are_all_skipped_is_refused(tmp_path: Path) -> None:
    found = unchecked(verdict(tmp_path, [("one", "SKIPPED")]), [SCENARIO], "2026-07-28")
    assert found == [f"{SCENARIO}:every check", f"{SCENARIO}:one"]


def test_one_skipped_check_among_passed_ones_is_refused(tmp_path: Path) -> None:
    found = unchecked(verdict(tmp_path, [("one", "SUCCESS"), ("two", "SKIPPED")]), [SCENARIO], "2026-07-28")
    assert found == [f"{SCENARIO}:two"]


@pytest.mark.parametrize(("version", "refused"), [("2025-11-25", 0), ("2026-07-28", 2)])
def test_cache_fields_may_be_skipped_only_where_the_version_has_none(
    tmp_path: Path, version: str, refused: int
) -> None:
    skipped = [(name.partition(":")[2], "SKIPPED") for name in NOT_IN_LEGACY]
    assert len(unchecked(verdict(tmp_path, [("one", "SUCCESS"), *skipped]), [SCENARIO], version)) == refused


def test_passed_checks_are_accepted(tmp_path: Path) -> None:
    assert unchecked(verdict(tmp_path, [("one", "SUCCESS")]), [SCENARIO], "2026-07-28") == []


def test_scenarios_of_extensions_do_not_count(tmp_path: Path) -> None:
    found = verdict(tmp_path, [("one", "SUCCESS"), ("two", "FAILURE")], without=(SCENARIO,))
    assert not found.passed | found.complaints.keys()


def test_an_expected_failure_that_passes_is_refused(tmp_path: Path) -> None:
    found = verdict(tmp_path, [("one", "SUCCESS"), ("two", "FAILURE")])
    known = [SCENARIO, f"{SCENARIO}:one", f"{SCENARIO}:two", f"{SCENARIO}:not-reached"]
    assert outdated(found, known) == [f"{SCENARIO}:one"]


def test_a_scenario_that_passes_is_no_expected_failure(tmp_path: Path) -> None:
    assert outdated(verdict(tmp_path, [("one", "SUCCESS")]), [SCENARIO]) == [SCENARIO]


@pytest.mark.parametrize("bad", [None, 0, 1, 2])
async def test_reports_come_in_order_and_one_that_is_bad_counts(
    bad: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = [asyncio.Event() for _ in range(4)]

    async def judge(number: int) -> Report:
        if number < 2:
            await ended[number + 1].wait()  # the last one ends first
        ended[number].set()
        return Report(number != bad, [f"run {number}", f"  line of {number}"])

    assert await print_in_order([judge(number) for number in range(3)]) == (bad is None)
    assert capsys.readouterr().out.split("\n")[:-1] == [
        line for number in range(3) for line in (f"run {number}", f"  line of {number}")
    ]


async def test_a_run_that_breaks_off_ends_the_others() -> None:
    async def judge(breaks: bool) -> Report:
        if breaks:
            raise TimeoutError
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(ExceptionGroup) as raised:
        await print_in_order([judge(breaks=False), judge(breaks=True)])
    assert [type(error) for error in raised.value.exceptions] == [TimeoutError]


def test_a_report_says_what_was_lost(tmp_path: Path) -> None:
    found = verdict(tmp_path, [("one", "SUCCESS"), ("two", "FAILURE")])
    assert report_on("a run", found, found.passed, [f"{SCENARIO}:two"]).good
    lost = report_on("a run", found, [*found.passed, f"{SCENARIO}:three"], [f"{SCENARIO}:two"])
    assert not lost.good
    assert lost.lines[0].startswith("FAIL a run")
    assert lost.lines[1:] == [f"       {SCENARIO}:three: not reached"]


@pytest.mark.skipif(suite.missing() is not None, reason=str(suite.missing()))
@pytest.mark.parametrize(("version", "servers", "clients"), [("2025-11-25", 30, 18), ("2026-07-28", 37, 32)])
def test_the_sets_of_requirements_are_read_whole(version: str, servers: int, clients: int) -> None:
    server, client = suite.requirements(version, "server"), suite.requirements(version, "client")
    assert (len(server.required), len(client.required)) == (servers, clients)
    assert "json-schema-2020-12" in server.beside
    assert "json-schema-2020-12-preservation" in client.beside
    assert all(name.startswith("tasks-") for name in server.extensions)
