"""A store in PostgreSQL by its address: in the configuration, in the environment, on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from pointsman.archive.settings import PostgresStore, SettingsError, read_settings
from pointsman.config.loader import load
from pointsman.router.cli.archive import archive
from pointsman.router.downstream.bundled import bundled_environment, schema_of
from tests.archive.harness import WHOLE_ANSWERS, through_gateway
from tests.e2e.client import assistant
from tests.gateway_process import gateway_process

PASSWORD = "s3cret-of-the-db"


def test_an_address_is_read_from_the_environment_and_shown_without_its_password() -> None:
    url = f"postgresql://user:{PASSWORD}@db.example:5433/archive?sslmode=require"
    store = read_settings({"SEARCH_DB_PATH": url, "SEARCH_DB_SCHEMA": "pointsman_notes"}).database
    assert store == PostgresStore(url, "pointsman_notes")
    assert str(store) == "postgresql://user@db.example:5433/archive, schema pointsman_notes"
    assert PASSWORD not in repr(store)
    default = read_settings({"SEARCH_DB_PATH": url}).database
    assert isinstance(default, PostgresStore)
    assert default.schema == schema_of("archive")
    with pytest.raises(SettingsError, match="SEARCH_DB_PATH") as refused:
        read_settings({"SEARCH_DB_PATH": f"postgresql://user:{PASSWORD}@db:port/x y"})
    assert PASSWORD not in str(refused.value)


def test_entries_of_one_database_have_tables_of_their_own() -> None:
    assert schema_of("notes") == "pointsman_notes"
    names = [schema_of("n" * 63 + letter) for letter in "ab"]
    assert all(len(name) <= 63 for name in names)
    assert names[0] != names[1]


async def test_the_gateway_gives_the_archive_its_address_and_shows_it_to_nobody(
    database_url: str, tmp_path: Path
) -> None:
    address = urlsplit(database_url)
    url = f"postgresql://postgres:{PASSWORD}@{address.hostname}:{address.port}{address.path}"
    config = {"servers": {"archive": {"bundled": "archive", "db": url}}, "limits": WHOLE_ANSWERS}
    async with through_gateway(tmp_path, config) as caller:
        found = await caller.result("documents_search", query="create a token")
        assert found["results"]
    everything = b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".yaml"
    )
    assert PASSWORD.encode() not in everything


async def test_archives_of_two_gateways_share_what_they_have(database_url: str, tmp_path: Path) -> None:
    config = {"servers": {"archive": {"bundled": "archive", "db": database_url}}, "limits": WHOLE_ANSWERS}
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    async with (
        gateway_process(folders[0], config) as one,
        gateway_process(folders[1], config) as two,
        assistant(one) as first,
        assistant(two) as second,
    ):
        await first.execute("archive:search_add_document", doc_id="a", content="written here, found there")
        found = await second.execute("archive:search_index", query="written")
        assert "found there" in json.dumps(found.structured_content)


def test_the_configuration_masks_the_address(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(f"servers:\n  archive:\n    bundled: archive\n    db: postgresql://user:{PASSWORD}@db/archive\n")
    server = load(file, {}).servers["archive"]
    given = bundled_environment("archive", server, tmp_path, {"PGPASSFILE": "/run/pass", "HOME": "/root"})
    assert given["SEARCH_DB_PATH"].startswith(f"postgresql://user:{PASSWORD}@")
    assert given["SEARCH_DB_SCHEMA"] == "pointsman_archive"
    assert given["PGPASSFILE"] == "/run/pass"
    assert "HOME" not in given
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "pointsman", "config", "show", "--config", str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert PASSWORD not in shown.stdout + shown.stderr
    assert "db: '********'" in shown.stdout


def test_commands_take_an_address_without_a_password_and_copy(database_url: str, tmp_path: Path) -> None:
    run = CliRunner(env={"POINTSMAN_ARCHIVE_EMBEDDINGS": "static", "SEARCH_DB_PATH": ""}).invoke
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Walrus\n\nThe walrus sleeps.\n")
    file = str(tmp_path / "archive.db")
    assert run(archive, ["ingest", str(tmp_path / "notes"), "--db", file]).exit_code == 0
    refused = run(archive, ["list", "--db", f"postgresql://user:{PASSWORD}@db/archive"])
    assert refused.exit_code == 2
    assert "must not have a password" in refused.output
    assert PASSWORD not in refused.output
    copied = run(archive, ["copy", "--db", file, "--to", database_url, "--json"])
    assert copied.exit_code == 0, copied.output
    assert '"vectors"' in copied.output
    found = run(archive, ["search", "walrus", "--db", database_url])
    assert "notes/a.md" in found.output, found.output
    assert "postgresql://postgres@" in run(archive, ["stats", "--db", database_url]).output
    back = str(tmp_path / "back.db")
    assert run(archive, ["copy", "--db", database_url, "--to", back]).exit_code == 0
    assert "notes/a.md" in run(archive, ["search", "walrus", "--db", back]).output
    same = run(archive, ["copy", "--db", back, "--to", back])
    assert same.exit_code == 2


def test_without_postgresql_nothing_of_its_driver_is_loaded(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from pointsman.archive.archive import open_archive; from pointsman.archive.settings import ArchiveSettings\n"
        "import pointsman.archive.server.server, pointsman.router.downstream.bundled, pointsman.router.cli.archive\n"
        "archive = open_archive(ArchiveSettings(Path('archive.db'), {})); archive.searcher.prepare(); archive.close()\n"
        "print([name for name in sys.modules if name.startswith('psycopg')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "POINTSMAN_ARCHIVE_EMBEDDINGS": "none"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
