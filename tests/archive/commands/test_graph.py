"""`pointsman archive graph`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.archive.citations.extract import citations_of
from pointsman.archive.commands import graph as graph_command
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.router.cli.archive import archive
from tests.archive.sample_documents import fill, prepared


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "archive.db"
    storage = SqliteStorage(path)
    documents = [
        prepared("a.md", "Penguins, see [b](b.md)."),
        prepared("b.md", "See [c](c.md)."),
        prepared("c.md", "C."),
    ]
    fill(storage, *(replace(each, citations=citations_of(each.document.content)) for each in documents))
    storage.close()
    return path


def graph(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(archive, ["graph", *arguments, "--db", str(database)])


def test_the_picture_shows_what_the_query_finds_and_what_that_cites(database: Path, tmp_path: Path) -> None:
    output = tmp_path / "graph.svg"
    result = graph(database, "penguins collection:notes", "-o", str(output))
    assert (result.exit_code, result.stdout) == (0, f"{output}: 2 nodes\n")
    assert output.read_text().count("<g>") == 2
    assert graph(database, "penguins collection:notes", "-o", str(output), "--depth", "2").exit_code == 0
    assert output.read_text().count("<g>") == 3
    fewer = graph(database, "penguins collection:notes", "-o", str(output), "--depth", "2", "--nodes", "2")
    assert "2 most certain of 3 nodes" in fewer.stderr


def test_a_graph_that_was_cut_short_is_not_said_to_be_all(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_command, "_MOST_REACHED", 2)
    few = ("penguins collection:notes", "-o", str(tmp_path / "graph.svg"), "--depth", "2", "--nodes", "1")
    assert "1 most certain of more than 2 nodes" in graph(database, *few).stderr


def test_a_slip_is_said(database: Path, tmp_path: Path) -> None:
    result = graph(database, "pengiuns", "-o", str(tmp_path / "graph.svg"))
    assert result.exit_code == 0
    assert "Read as: penguins" in result.stderr


def test_a_query_that_finds_nothing_writes_nothing(database: Path, tmp_path: Path) -> None:
    result = graph(database, "zzzzzz", "-o", str(tmp_path / "graph.svg"))
    assert result.exit_code == 1
    assert "No document matches `zzzzzz`" in result.stderr
    assert not (tmp_path / "graph.svg").exists()


def test_a_place_that_cannot_be_written_is_named(database: Path, tmp_path: Path) -> None:
    result = graph(database, "penguins", "-o", str(tmp_path / "nowhere" / "graph.svg"))
    assert result.exit_code == 1
    assert "graph.svg: No such file or directory." in result.stderr


@pytest.mark.parametrize("depth", ["0", "4"])
def test_a_depth_out_of_range_is_refused(database: Path, depth: str) -> None:
    assert graph(database, "penguins", "-o", "x.svg", "--depth", depth).exit_code == 2
