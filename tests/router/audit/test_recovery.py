"""The audit is read at once after a daemon was killed, at whatever moment of its writing."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pointsman.router.audit.database import FILE, SCHEMA_VERSION, open_database
from tests.router.audit.samples import rows

ROOT = Path(__file__).parents[3]
IN_THE_MAKING = 2048  # room for half of the first page, so that SQLite's journal says how to take it back
IN_A_MOVE = 100_000  # room for some moves, which are in the WAL file only
PATIENCE_S = 60
READER = """
import os, sys
from pathlib import Path
from tests.router.audit.samples import rows
if "stranger" in sys.argv and os.geteuid() == 0:
    os.setuid(65534)
print("ready", flush=True)
sys.stdin.readline()
try:
    print([row.seq for row in rows(Path(sys.argv[1]))])
except Exception as error:
    print(type(error).__name__, error)
"""
MAKER = """
import sys
from pathlib import Path
from pointsman.router.audit.database import open_database
print("ready", flush=True)
sys.stdin.readline()
print(open_database(Path(sys.argv[1]) / "state.db", 60).execute("PRAGMA user_version").fetchone())
"""


def killed(state_dir: Path, file_bytes: int) -> list[int]:
    """Leaves what a daemon leaves that is killed there, and returns the seqs that it wrote."""
    command = [sys.executable, "-m", "tests.router.audit.killed", str(state_dir), str(file_bytes)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGXFSZ
    return list(range(1, int(done.stdout.split()[-1]) + 1))


def at_once(state_dir: Path, *scripts: str, stranger: bool = False) -> Iterator[str]:
    """What each script says, in a process of its own; all are ready before the first may begin."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script, str(state_dir), *(["stranger"] if stranger else [])],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for script in scripts
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            said, _ = process.communicate(timeout=PATIENCE_S)
            yield said.strip()


@pytest.fixture
def killed_in_the_making(tmp_path: Path) -> list[int]:
    written = killed(tmp_path, IN_THE_MAKING)
    assert (tmp_path / f"{FILE}-journal").stat().st_size > 0
    assert (tmp_path / FILE).stat().st_size == IN_THE_MAKING
    return written


@pytest.fixture
def killed_in_a_move(tmp_path: Path) -> list[int]:
    written = killed(tmp_path, IN_A_MOVE)
    assert (tmp_path / f"{FILE}-wal").stat().st_size == IN_A_MOVE
    return written


def test_a_database_that_was_being_made_is_read_and_made_by_the_next_run(
    tmp_path: Path, killed_in_the_making: list[int]
) -> None:
    assert [row.seq for row in rows(tmp_path)] == killed_in_the_making
    open_database(tmp_path / FILE).close()
    assert [row.seq for row in rows(tmp_path)] == killed_in_the_making


@pytest.mark.parametrize("shared_memory", ["left", "missing", "cut short", "of another time"])
def test_rows_that_are_in_the_wal_file_only_are_read(
    tmp_path: Path, killed_in_a_move: list[int], shared_memory: str
) -> None:
    memory = tmp_path / f"{FILE}-shm"
    if shared_memory == "missing":
        memory.unlink()
    elif shared_memory == "cut short":
        memory.write_bytes(memory.read_bytes()[:100])
    elif shared_memory == "of another time":
        memory.write_bytes(bytes(range(256)) * 128)
    assert [row.seq for row in rows(tmp_path)] == killed_in_a_move


@pytest.mark.parametrize("when", ["killed_in_the_making", "killed_in_a_move"])
def test_readers_and_the_next_run_may_all_come_at_once(
    tmp_path: Path, when: str, request: pytest.FixtureRequest
) -> None:
    written = request.getfixturevalue(when)
    (tmp_path / f"{FILE}-shm").unlink(missing_ok=True)
    *read, made = at_once(tmp_path, READER, READER, READER, MAKER)
    assert read == [str(written)] * 3
    assert made == f"({SCHEMA_VERSION},)"


@pytest.fixture
def shown() -> Iterator[Path]:
    """A state folder that others may read; `tmp_path` is closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o700)


def show(state_dir: Path) -> None:
    for path in (*state_dir.rglob("*"), state_dir):
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_one_who_may_not_write_there_is_told_what_to_do(shown: Path) -> None:
    killed(shown, IN_THE_MAKING)
    show(shown)
    (said,) = at_once(shown, READER, stranger=True)
    assert said.startswith("OperationalError")
    assert "Run this command as the user that runs the gateway, or on a copy of the state folder." in said


def test_one_who_may_not_write_there_reads_what_is_complete(shown: Path) -> None:
    written = killed(shown, IN_THE_MAKING)
    open_database(shown / FILE).close()
    show(shown)
    assert list(at_once(shown, READER, stranger=True)) == [str(written)]
