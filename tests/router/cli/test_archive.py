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
    assert "switched off" in refused.stderr


def test_db_beats_the_environment_and_the_environment_beats_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path, "  a: {bundled: archive}\n")
    monkeypatch.setenv("SEARCH_DB_PATH", str(tmp_path / "env.db"))
    assert database() == str(tmp_path / "env.db")
    assert database("--db", tmp_path / "named.db") == str(tmp_path / "named.db")
    assert database("--server", "a", "--state-dir", tmp_path / "state") == str(tmp_path / "state/archive-a.db")


@pytest.mark.parametrize(
    ("servers", "args", "reason"),
    [
        ("  time: {command: uvx}\n", (), "names no archive. Add `archive: {bundled: archive}`"),
        ("  a: {bundled: archive}\n  b: {bundled: archive}\n", (), "Choose with --server: a, b."),
        ("  a: {bundled: archive}\n", ("--server", "x"), "`x` is no bundled archive"),
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
    assert "No configuration yet" in refused.stderr
