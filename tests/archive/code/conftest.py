"""The parser is a process of its own: one for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman.archive.code.parser import ImportParser


@pytest.fixture(scope="module")
def parser() -> Iterator[ImportParser]:
    parser = ImportParser(timeout_s=60)  # a busy machine is no reason to fail
    yield parser
    parser.close()
