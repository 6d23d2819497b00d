"""Which store `pointsman archive` works on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.router.cli.main import main


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SEARCH_DB_PATH", "POINTSMAN_CONFIG", "POINTSMAN_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["archive", *map(str, args)])


def database(*args: object) -> str:
    done = run("stats", "--json", *args)
    assert done.exit_code == 0, done.output
    return str(json.loads(done.stdout)["database"])


def configured(tmp_path: Path, servers: str) -> Path:
    file = tmp_path / "pointsman.yaml"
    file.write_text(f"servers:\n{servers}")
    return file


def test_it_is_the_store_that_the_gateway_hands_to_its_bundled_server(tmp_path: Path) -> None:
    configured(tmp_path, "  mine: {bundled: archive}\n  time: {command: uvx}\n")
    assert database("--state-dir", tmp_path / "state") == str(tmp_path / "state/archive-mine.db")


def test_it_is_the_db_of_the_entry(tmp_path: Path) -> None:
    configured(tmp_path, f"  a: {{bundled: archive, db: {tmp_path}/own.db}}\n  b: {{bundled: archive}}\n")
    assert database("--server", "a") == str(tmp_path / "own.db")


def test_variables_of_the_entry_hold(tmp_path: Path) -> None:
    configured(tmp_path, "  a: {bundled: archive, env: {POINTSMAN_ARCHIVE_EMBEDDINGS: none}}\n")
    refused = run("embed", "--state-dir", tmp_path / "state")
    assert refused.exit_code == 2
    assert "disabled" in refused.stderr


@pytest.mark.parametrize(
    ("servers", "args", "store"),
    [
        ("  a: {bundled: archive}\n", ("--db", "named.db"), "named.db"),
        ("  a: {bundled: archive}\n", (), "gateway.db"),
        ("  a: {bundled: archive}\n", ("--server", "a"), "gateway.db"),
        ("  a: {bundled: archive, env: {SEARCH_DB_PATH: HERE/entry.db}}\n", (), "entry.db"),
        ("  a: {bundled: archive, db: own.db, env: {SEARCH_DB_PATH: HERE/entry.db}}\n", (), "own.db"),
        ("  a: {bundled: archive, db: own.db}\n  b: {bundled: archive}\n", ("--server", "a"), "own.db"),
        ("  a: {bundled: archive, db: own.db}\n  b: {bundled: archive}\n", ("--server", "b"), "gateway.db"),
        ("  a: {bundled: archive, env: {SEARCH_DB_PATH: ''}}\n", (), "gateway.db"),
        ("  time: {command: uvx}\n", (), "gateway.db"),
    ],
)
def test_the_order_is_db_then_the_variable_of_the_entry_then_the_variable_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str, args: tuple[str, ...], store: str
) -> None:
    configured(tmp_path, servers.replace("HERE", str(tmp_path)))
    monkeypatch.setenv("SEARCH_DB_PATH", str(tmp_path / "gateway.db"))
    assert database(*args).removeprefix(f"{tmp_path}/") == store


def test_without_a_configuration_the_environment_names_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTSMAN_CONFIG_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("SEARCH_DB_PATH", str(tmp_path / "env.db"))
    assert database() == str(tmp_path / "env.db")


def test_a_variable_that_is_not_used_is_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, "  a: {bundled: archive, db: own.db}\n")
    monkeypatch.setenv("SEARCH_DB_PATH", str(tmp_path / "env.db"))
    assert "Ignoring SEARCH_DB_PATH: `servers.a`" in run("stats").stderr


def test_one_variable_for_several_archives_is_refused_with_the_line_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path, "  a: {bundled: archive}\n  b: {bundled: archive}\n")
    monkeypatch.setenv("SEARCH_DB_PATH", "/srv/shared.db")
    for refused in (run("list"), run("list", "--server", "a"), CliRunner().invoke(main, ["config", "validate"])):
        assert refused.exit_code == 2
        assert "archives a, b" in refused.stderr
        assert "`db: /srv/shared.db`" in refused.stderr


def test_a_relative_store_in_the_variables_of_an_entry_is_refused(tmp_path: Path) -> None:
    configured(tmp_path, "  a: {bundled: archive, env: {SEARCH_DB_PATH: notes.db}}\n")
    refused = run("list")
    assert refused.exit_code == 2
    assert "must be absolute" in refused.stderr


@pytest.mark.parametrize(
    ("servers", "args", "reason"),
    [
        ("  time: {command: uvx}\n", (), "configures no archive. Add `archive: {bundled: archive}`"),
        ("  a: {bundled: archive}\n  b: {bundled: archive}\n", (), "Choose one with --server: a, b."),
        ("  a: {bundled: archive}\n", ("--server", "x"), "`x` is not a bundled archive"),
        ("  a: {bundled: nothing}\n", (), "servers.a.bundled"),
        (
            "  a: {bundled: archive, env: {POINTSMAN_ARCHIVE_EMBEDDINGS: magic}}\n",
            (),
            "POINTSMAN_ARCHIVE_EMBEDDINGS is `magic`",
        ),
    ],
)
def test_what_is_unclear_is_refused_with_the_next_step(
    tmp_path: Path, servers: str, args: tuple[str, ...], reason: str
) -> None:
    configured(tmp_path, servers)
    refused = run("list", *args)
    assert refused.exit_code == 2
    assert reason in refused.stderr


def test_without_a_configuration_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_CONFIG_DIR", str(tmp_path / "none"))
    refused = run("list")
    assert refused.exit_code == 2
    assert "No configuration found" in refused.stderr


def test_what_changes_the_store_tells_its_result_as_json(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("queue", "other"):
        (notes / f"{name}.md").write_text(f"# {name}\n\nWe chose the {name} because it keeps order.\n")
    db = ("--db", tmp_path / "a.db", "--json")
    assert run("ingest", notes, *db).exit_code == 0
    drawn = json.loads(run("graph", "queue", "-o", tmp_path / "g.svg", *db).stdout)
    assert (drawn["file"], drawn["drawn"]) == (str(tmp_path / "g.svg"), drawn["reached"])
    assert json.loads(run("embed", *db).stdout) == {"computed": 0}
    removed = json.loads(run("remove", "notes", "queue.md", *db).stdout)
    assert removed == {"collection": "notes", "removed": ["queue.md"]}
    assert json.loads(run("remove", "notes", *db).stdout) == {"collection": "notes", "removed": None}
    item = json.loads(run("context", "add", "--type", "rule", "a decision", *db).stdout)["id"]
    assert json.loads(run("context", "remove", item, *db).stdout) == {"removed": [item], "unknown": []}
