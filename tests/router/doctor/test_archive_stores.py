"""`doctor` says before the first call whether an archive can use PostgreSQL, and so does the archive itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from pointsman.archive.store.errors import StoreUnusableError
from pointsman.archive.store.postgres.database import PostgresDatabase
from pointsman.router.cli.main import main
from tests.postgres import Postgres

KEY = "0123456789abcdef" * 4


@pytest.fixture
def ordinary(postgres: Postgres) -> Iterator[tuple[str, str]]:
    """The address of a database whose owner is no superuser, and that of a superuser."""
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE owner_{name} LOGIN".encode())
        connection.execute(f"ALTER DATABASE {name} OWNER TO owner_{name}".encode())
    yield url.replace("postgres@", f"owner_{name}@"), url
    postgres.drop_database(url)


def archive_findings(folder: Path, config: dict[str, Any]) -> list[tuple[str, str]]:
    (folder / "pointsman.yaml").write_text(json.dumps(config))
    environment = {"POINTSMAN_STATE_DIR": str(folder / "state"), "POINTSMAN_CONFIG_DIR": str(folder)}
    arguments = ["doctor", "--json", "--config", str(folder / "pointsman.yaml")]
    found = json.loads(CliRunner(env=environment).invoke(main, arguments).stdout)["findings"]
    return [(one["level"], one["message"]) for one in found if one["check"] == "archive"]


def test_a_role_that_may_not_create_the_extension_is_reported_and_the_step_helps(
    tmp_path: Path, ordinary: tuple[str, str]
) -> None:
    url, superuser = ordinary
    config = {
        "servers": {"archive": {"bundled": "archive"}},
        "state": {"database": url, "request_keys": [KEY]},
    }
    [(level, said)] = archive_findings(tmp_path, config)
    assert level == "problem"
    assert "lacks the extension `vector`" in said
    assert "Let a superuser run `CREATE EXTENSION vector` in that database once." in said
    with pytest.raises(StoreUnusableError, match="Let a superuser run `CREATE EXTENSION vector` in this database once"):
        PostgresDatabase(url, "pointsman_archive")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    [(level, said)] = archive_findings(tmp_path, config)
    assert (level, "can be used, with pgvector" in said) == ("ok", True)
    PostgresDatabase(url, "pointsman_archive").close()


def test_a_superuser_may_create_it(tmp_path: Path, database_url: str) -> None:
    config = {"servers": {"notes": {"bundled": "archive", "db": database_url}}}
    [(level, said)] = archive_findings(tmp_path, config)
    assert (level, "archive `notes`" in said) == ("ok", True)


def test_a_role_that_may_not_create_schemas_is_reported(tmp_path: Path, ordinary: tuple[str, str]) -> None:
    url, superuser = ordinary
    name = superuser.rpartition("/")[2]
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(f"ALTER DATABASE {name} OWNER TO postgres".encode())
    [(level, said)] = archive_findings(tmp_path, {"servers": {"notes": {"bundled": "archive", "db": url}}})
    assert (level, "may not create schemas" in said) == ("problem", True)
    with pytest.raises(StoreUnusableError, match="the owner of the database, or give it the right with GRANT"):
        PostgresDatabase(url, "pointsman_notes")


def test_files_and_a_database_that_is_away_have_no_finding_of_their_own(tmp_path: Path) -> None:
    archive = {"archive": {"bundled": "archive"}}
    assert archive_findings(tmp_path, {"servers": archive}) == []
    state = {"database": "postgresql://me@127.0.0.1:1/x", "request_keys": [KEY]}
    assert archive_findings(tmp_path, {"servers": archive, "state": state}) == []
