"""The generated parts of the pages are current and complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from pointsman.config import model
from pointsman.config.sections import rates, server
from pointsman.core import errors as core
from pointsman.router.cli.main import COMMANDS
from pointsman.router.clients.dialects import DIALECTS
from pointsman.router.front.http import responses
from pointsman.router.search_api import messages
from tests.documentation import configuration, errors
from tests.documentation.generated import ROOT, names, pages, rewritten

REFERENCE = ROOT / "docs/reference"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_is_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == rewritten(text), "run `make docs`"


def test_every_part_of_the_configuration_has_its_table() -> None:
    documented_elsewhere = {  # as Project, Timeouts and TokenRates
        model.Unassigned,
        server.ServerTimeouts,
        rates.ServerRates,
        rates.ToolRates,
    }
    expected = {f"configuration {part.__name__}" for part in configuration.parts() if part not in documented_elsewhere}
    assert expected <= set(names(REFERENCE / "configuration.md"))


def test_a_part_that_is_documented_with_another_has_the_same_keys() -> None:
    settings, project = model.Unassigned.model_fields, dict(model.Project.model_fields)
    del project["name"]
    assert {name: (field.annotation, field.default) for name, field in settings.items()} == {
        name: (field.annotation, field.default) for name, field in project.items()
    }
    assert server.ServerTimeouts.model_fields.keys() == server.Timeouts.model_fields.keys()
    for some in (rates.ServerRates, rates.ToolRates):
        assert some.model_fields.keys() <= rates.TokenRates.model_fields.keys()


def test_the_programs_that_download_are_named() -> None:
    text = configuration.descriptions(server.Timeouts)["connect_s"]
    assert f" {server.DOWNLOAD_S:g} for " in text
    assert all(f"`{program}`" in text for program in server.DOWNLOADERS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section(name: str) -> None:
    assert f"command {name}" in names(REFERENCE / "commands.md"), (
        f"add a section with <!-- generated: command {name} -->"
    )


def test_every_code_of_an_error_has_its_row() -> None:
    assert {error.code for error in _below(core.GatewayError) | _below(core.RefusedError)} <= _codes(
        errors.of_gateway()
    )
    assert _codes(errors.of_archive()) == set(get_args(core.BundledCode))
    assert _codes(errors.of_cloud_search()) == errors.cloud_codes_in_source()
    assert _codes(errors.of_search_service()) == set(get_args(messages.Code))


def test_every_status_is_shown_with_its_code() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    for status, code in responses.REASONS.items():
        assert f"| {status} | `{code}` |" in page


def _below(kind: type[Any]) -> set[type[Any]]:
    return {found for below in kind.__subclasses__() for found in {below, *_below(below)}}


def _codes(table: str) -> set[str]:
    return set(re.findall(r"^\|(?: [\d, ]+ \|)? `(\w+)` \| ", table, re.MULTILINE)) - {"code"}


def test_every_client_has_its_page_and_is_linked() -> None:
    index = (ROOT / "docs/guide/clients.md").read_text(encoding="utf-8")
    assert {page.stem for page in (ROOT / "docs/guide/clients").iterdir()} == set(DIALECTS)
    for name, dialect in DIALECTS.items():
        assert names(ROOT / f"docs/guide/clients/{name}.md") == [f"client {name}"]
        assert f"[{dialect.title}](clients/{name}.md)" in index
