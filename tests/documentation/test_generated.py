"""The generated parts of the pages are current and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.config import model
from pointsman.router.cli.main import COMMANDS
from tests.documentation import configuration
from tests.documentation.generated import ROOT, names, pages, rewritten

REFERENCE = ROOT / "docs/reference"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_is_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == rewritten(text), "run `make docs`"


def test_every_part_of_the_configuration_has_its_table() -> None:
    documented_elsewhere = {model.Unassigned, model.ServerTimeouts}  # as Project and Timeouts
    expected = {f"configuration {part.__name__}" for part in configuration.parts() if part not in documented_elsewhere}
    assert expected <= set(names(REFERENCE / "configuration.md"))


def test_a_part_that_is_documented_with_another_has_the_same_keys() -> None:
    settings, project = model.Unassigned.model_fields, dict(model.Project.model_fields)
    del project["name"]
    assert {name: (field.annotation, field.default) for name, field in settings.items()} == {
        name: (field.annotation, field.default) for name, field in project.items()
    }
    assert model.ServerTimeouts.model_fields.keys() == model.Timeouts.model_fields.keys()


def test_the_programs_that_download_are_named() -> None:
    text = configuration.descriptions(model.Timeouts)["connect_s"]
    assert f" {model.DOWNLOAD_S:g} for " in text
    assert all(f"`{program}`" in text for program in model.DOWNLOADERS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section(name: str) -> None:
    assert f"command {name}" in names(REFERENCE / "commands.md"), (
        f"add a section with <!-- generated: command {name} -->"
    )
