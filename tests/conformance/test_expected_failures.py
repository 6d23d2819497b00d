"""The file of expected failures, as far as it can be judged without running the suite."""

from __future__ import annotations

from fnmatch import fnmatch

from tests.conformance.__main__ import names
from tests.conformance.expected_failures import sections


def test_every_expected_failure_says_why() -> None:
    silent = [name for entries in sections().values() for name, why in entries.items() if len(why.split()) < 3]
    assert not silent


def test_every_section_is_about_runs_that_exist() -> None:
    strange = [pattern for pattern in sections() if not any(fnmatch(name, pattern) for name in names())]
    assert not strange


def test_nothing_is_expected_twice_for_one_run() -> None:
    for run in names():
        entries = [entry for pattern, known in sections().items() if fnmatch(run, pattern) for entry in known]
        assert len(entries) == len(set(entries)), run
