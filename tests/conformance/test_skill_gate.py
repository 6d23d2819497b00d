"""The gate of the skills scenarios: it refuses what the suite calls a pass although nothing was checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.__main__ import NOT_IN_LEGACY, unchecked

SCENARIO = "sep-2640-skills-enumeration"


def verdict(folder: Path, checks: list[tuple[str, str]]) -> suite.Verdict:
    written = folder / f"server-{SCENARIO}-2026-11-17T04-00-00-000Z"
    written.mkdir()
    (written / "checks.json").write_text(json.dumps([{"id": name, "status": status} for name, status in checks]))
    return suite.read_verdict(folder, "", content=True)


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
