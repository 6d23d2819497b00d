"""Fixtures of the code tools: one parser per test file, and generous deadlines for a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman.archive.code import grep, ripgrep
from pointsman.archive.code.imports.parser import ImportParser


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "COUNT_S", 60.0)
    monkeypatch.setattr(grep, "HARD_S", 60.0)
    monkeypatch.setattr(grep, "LOCATE_S", 60.0)
    monkeypatch.setattr(ripgrep, "_CHECK_S", 60.0)


@pytest.fixture(scope="module")
def parser() -> Iterator[ImportParser]:
    parser = ImportParser(timeout_s=60)  # a busy machine is no reason to fail
    yield parser
    parser.close()
