"""The examples on the page about configuration are valid. `tests/documentation` checks its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pointsman.config.loader import parse

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", re.findall(r"```(?:yaml|json)\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_is_a_good_configuration(example: str) -> None:
    assert parse(example, "example.yaml", {"TRACKER_TOKEN": "x"}).servers
