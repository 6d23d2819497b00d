"""`pointsman state copy`: to PostgreSQL and back, as often as one likes, and without a row twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pointsman.archive.archive import open_storage
from pointsman.core.postgres import Postgres
from pointsman.router.audit.database import FILE
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.kept import move
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.postgres.writer import PostgresWriter
from pointsman.router.audit.query import read_rows
from pointsman.router.audit.segments import FOLDER, list_segments
from pointsman.router.audit.store import Store
from pointsman.router.cli.main import main
from pointsman.router.state.postgres_values import PostgresKeyValues
from pointsman.router.state.sqlite_values import SqliteKeyValues
from pointsman.router.state.tables import StateTables
from tests.archive.sample_documents import fill, prepared
from tests.router.audit.postgres.samples import in_database, kept, opened
from tests.router.audit.postgres.test_reading import plain
from tests.router.audit.samples import Clock, request, rows


def run(folder: Path, *arguments: str, **environment: str) -> Result:
    own = {"POINTSMAN_STATE_DIR": str(folder), "POINTSMAN_CONFIG_DIR": str(folder), **environment}
    return CliRunner(env=own).invoke(main, ["state", "copy", *arguments])


def copied(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    result = run(folder, *arguments, "--json", **environment)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Rows of 40 days in the database, one without an outcome yet, one in the journal, and two values."""
    folder = tmp_path / "files"
    wall = Clock()
    journal = Journal(folder / FOLDER)
    log = AuditLog(journal, wall=wall)
    for day in range(40):
        log.begin(request(f"r{day}"), "execute", tool_key="a:b").finish("ok", provider="bm25", fallback=day % 2 == 0)
        wall.now += 86_400
    record = log.begin(request("slow"), "execute")
    log.housekeep()
    store = Store(folder / FILE)
    store.move(folder / FOLDER, journal.position)
    store.close()
    record.finish("timeout")
    log.begin(request("last"), "execute").finish("ok")
    log.close()
    values = SqliteKeyValues(folder)
    values.put("pin/a", b"1")
    values.put("pin/b", b"2", life_s=3600)
    values.close()
    return folder


def test_to_postgresql_and_back_every_row_and_value_arrives_once(
    tmp_path: Path, files: Path, database_url: str
) -> None:
    before = rows(files)
    counts = {"rows": 41, "rowsAdded": 41, "rowsInJournal": 1, "values": 2, "valuesWritten": 2}
    first = {**counts, "differing": [], "archives": {}}
    assert copied(files, "--to", database_url) == first
    assert copied(files, "--to", database_url) == first | {"rowsAdded": 0, "valuesWritten": 0}
    with opened(database_url) as postgres:
        # The gateway starts on the database, and moves what the journal still had.
        move(PostgresWriter(postgres, "a"), files / FOLDER, None)
        assert plain(read_rows(kept(postgres, files))) == before
        values = PostgresKeyValues(StateTables(postgres))
        assert [(key, value) for key, value, _ in values.dump()] == [("pin/a", b"1"), ("pin/b", b"2")]
        assert [left_s is None or 3000 < left_s <= 3600 for _, _, left_s in values.dump()] == [True, True]
    back = copied(files, "--to", str(tmp_path / "back"), POINTSMAN_DATABASE=database_url)
    assert back["rowsAdded"] == len(before) == 42
    assert copied(files, "--to", str(tmp_path / "back"), POINTSMAN_DATABASE=database_url)["rowsAdded"] == 0
    assert rows(tmp_path / "back") == before
    assert copied(files, "--to", "sqlite", POINTSMAN_DATABASE=database_url)["rowsAdded"] == 1  # that of the journal
    assert rows(files) == before


def test_a_segment_that_was_moved_but_not_deleted_brings_no_copied_row_again(files: Path, database_url: str) -> None:
    (segment,) = list_segments(files / FOLDER)
    content = segment.path.read_bytes()
    store = Store(files / FILE)
    store.move(files / FOLDER, None)
    store.close()
    segment.path.write_bytes(content)  # as if the gateway had been killed before it deleted the file
    copied(files, "--to", database_url)
    with opened(database_url) as postgres:
        move(PostgresWriter(postgres, "a"), files / FOLDER, None)
        names = [name for name, _ in in_database(postgres)]
    assert len(names) == len(set(names)) == 42


def test_an_outcome_that_came_later_is_copied_the_next_time(files: Path, database_url: str) -> None:
    copied(files, "--to", database_url)
    with opened(database_url) as postgres:
        assert ("slow", None) in in_database(postgres)
        store = Store(files / FILE)
        store.move(files / FOLDER, None)
        store.close()
        assert copied(files, "--to", database_url)["rowsAdded"] == 1
        assert ("slow", "timeout") in in_database(postgres)


def test_a_value_that_differs_is_left_unless_it_is_to_be_replaced(files: Path, database_url: str) -> None:
    postgres = Postgres(database_url, program="test")
    values = PostgresKeyValues(StateTables(postgres))
    values.put("pin/a", b"theirs")
    said = run(files, "--to", database_url)
    assert "Left 1 value that the target has otherwise (pin/a); --overwrite takes ours." in said.output
    assert values.get("pin/a") is not None
    assert copied(files, "--to", database_url)["differing"] == ["pin/a"]
    assert copied(files, "--to", database_url, "--overwrite")["valuesWritten"] == 1
    entry = values.get("pin/a")
    assert entry is not None
    assert entry.value == b"1"
    postgres.close()


def test_archives_come_with_the_state_if_they_name_no_store(tmp_path: Path, files: Path, database_url: str) -> None:
    own = tmp_path / "own.db"
    config = {"servers": {"notes": {"bundled": "archive"}, "own": {"bundled": "archive", "db": str(own)}}}
    (files / "pointsman.yaml").write_text(json.dumps(config))
    for store, title in ((files / "archive-notes.db", "harbour"), (own, "kept")):
        _put(store, title)
    for _ in range(2):
        archives = copied(files, "--to", database_url)["archives"]
        assert list(archives) == ["notes"]
        assert (archives["notes"]["documents"], archives["notes"]["collections"]) == (1, 1)
    back = tmp_path / "back"
    said = run(files, "--to", str(back), POINTSMAN_DATABASE=database_url)
    assert "Copied the archive notes: 1 document in 1 collection" in said.output
    storage = open_storage(back / "archive-notes.db")
    assert [each.id for each in storage.documents.list_documents("coast", 10, 0).documents] == ["harbour"]
    storage.close()


def test_the_configuration_of_a_stopped_gateway_can_be_named(tmp_path: Path, files: Path, database_url: str) -> None:
    copied(files, "--to", database_url)
    config = tmp_path / "elsewhere.yaml"
    config.write_text(json.dumps({"state": {"database": database_url}, "servers": {"notes": {"bundled": "archive"}}}))
    back = copied(files, "--to", str(tmp_path / "back"), "--config", str(config))
    assert (back["rowsAdded"], list(back["archives"])) == (41, ["notes"])
    assert "Name the configuration with --config" in run(files, "--to", "sqlite").output


def test_rows_that_wait_in_the_journal_are_mentioned(files: Path, database_url: str) -> None:
    assert copied(files, "--to", database_url)["rowsInJournal"] == 1
    said = run(files, "--to", database_url).output
    assert "The journal has 1 more audit row; the running gateway, or else the next start, moves it." in said


@pytest.mark.parametrize("command", ["list", "tail"])
def test_the_audit_of_a_stopped_gateway_is_read_where_the_named_configuration_says(
    tmp_path: Path, files: Path, database_url: str, command: str
) -> None:
    copied(files, "--to", database_url)
    config, empty = tmp_path / "elsewhere.yaml", tmp_path / "empty"
    config.write_text(json.dumps({"state": {"database": database_url}}))
    empty.mkdir()
    arguments = ["audit", command, "--json", "--config", str(config), "--state-dir", str(empty)]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 41 if command == "list" else 20), result.output
    missing = CliRunner().invoke(main, [*arguments, "--config", str(tmp_path / "missing.yaml")])
    assert (missing.exit_code, "missing.yaml" in missing.output) == (2, True)


@pytest.mark.parametrize("target", ["sqlite", "postgresql://me@127.0.0.1:1/x"])
def test_a_named_configuration_that_cannot_be_used_is_an_error(tmp_path: Path, files: Path, target: str) -> None:
    missing, broken = tmp_path / "missing.yaml", tmp_path / "broken.yaml"
    broken.write_text("state: [oops\n")
    for config in (missing, broken):
        said = run(files, "--to", target, "--config", str(config))
        assert (said.exit_code, config.name in said.output) == (2, True), said.output


def _put(store: Path, title: str) -> None:
    storage = open_storage(store)
    fill(storage, prepared(title, "text"), collection="coast")
    storage.close()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/x", "The copy is not complete: PostgreSQL cannot be reached"),
        ("postgresql://me:hunter2%zz@db/x", "is not an address of PostgreSQL"),
        ("sqlite", "No database is configured to copy from"),
    ],
)
def test_what_cannot_be_copied_is_said_without_the_password(files: Path, target: str, reason: str) -> None:
    said = run(files, "--to", target)
    assert said.exit_code in (1, 2)
    assert reason in said.output
    assert "hunter2" not in said.output


@pytest.mark.parametrize(
    "target", ["postgresq://me:hunter2@db/x", "mysql://me:hunter2@db/x", "Postgres://me:hunter2@x"]
)
def test_a_url_that_is_not_of_postgresql_makes_no_folder(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, database_url: str
) -> None:
    empty = tmp_path / "cwd"
    empty.mkdir()
    monkeypatch.chdir(empty)
    said = run(files, "--to", target, POINTSMAN_DATABASE=database_url)
    assert said.exit_code == 2
    assert (
        "The target of --to is a URL, but not one of PostgreSQL. Write postgresql://USER@HOST:PORT/DATABASE"
        in said.output
    )
    assert "hunter2" not in said.output
    assert list(empty.iterdir()) == []


def test_a_database_that_is_away_is_an_error_even_if_there_is_nothing_to_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    away = "postgresql://me:hunter2@127.0.0.1:1/x"
    said = run(source, "--to", away)
    assert said.exit_code == 1, said.output
    assert "PostgreSQL cannot be reached at 127.0.0.1:1, database x (Connection refused)." in said.output
    assert run(source, "--to", str(target), POINTSMAN_DATABASE=away).exit_code == 1
    assert not target.exists()
