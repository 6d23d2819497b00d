"""The page on configuration knows every key and every variable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pointsman.config import model
from pointsman.config.loader import parse
from pointsman.config.settings import PREFIX, Settings

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
PARTS = [part for part in vars(model).values() if isinstance(part, type) and issubclass(part, model.Part)]


@pytest.mark.parametrize("part", PARTS)
def test_every_key_is_documented(part: type[model.Part]) -> None:
    for name in part.model_fields:
        assert re.search(rf"`[\w.]*\b{name}\b[\w.<>]*`", PAGE), name


def test_every_variable_is_documented() -> None:
    for name in Settings.model_fields:
        assert f"`{PREFIX}{name.upper()}`" in PAGE


@pytest.mark.parametrize("example", re.findall(r"```(?:yaml|json)\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_is_a_good_configuration(example: str) -> None:
    assert parse(example, "example.yaml", {"TRACKER_TOKEN": "x"}).servers
