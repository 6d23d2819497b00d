"""One daemon for each state folder, and a note that is only believed while it holds."""

import fcntl
import os
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from pointsman.router.serving.state_folder import (
    LOCK,
    MAX_REPLICAS,
    NOTE,
    RunningGateway,
    StateFolderError,
    announced,
    find_running,
    locked,
    replica_folder,
    replica_folders,
    workers_folder,
)

CONFIG = Path("/etc/pointsman.yaml")


def test_a_second_daemon_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with locked(tmp_path), announced(tmp_path, "http://127.0.0.1:1/mcp", CONFIG):
        with (
            pytest.raises(StateFolderError, match=rf"http://127.0.0.1:1/mcp \(process {os.getpid()}\)"),
            locked(tmp_path),
        ):
            pass
        assert find_running(tmp_path) == RunningGateway("http://127.0.0.1:1/mcp", os.getpid(), str(CONFIG))
    assert find_running(tmp_path) is None
    with locked(tmp_path):
        assert find_running(tmp_path) is None


def test_one_who_looks_in_that_moment_keeps_no_daemon_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked(tmp_path):
        pass
    looking = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    lock = fcntl.flock
    met = []

    def met_once(handle: int, how: int) -> None:
        """The one who looks leaves as soon as the daemon has met him."""
        try:
            lock(handle, how)
        except BlockingIOError:
            met.append(how)
            os.close(looking)
            raise

    monkeypatch.setattr(fcntl, "flock", met_once)
    with locked(tmp_path):
        assert met == [fcntl.LOCK_EX | fcntl.LOCK_NB]


def test_the_note_of_a_killed_daemon_is_not_believed(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from pointsman.router.serving.state_folder import announced, locked\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with locked(folder), announced(folder, 'http://127.0.0.1:1/mcp', folder): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / NOTE).exists()
    assert find_running(tmp_path) is None


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with locked(folder), announced(folder, "http://127.0.0.1:1/mcp", CONFIG):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFolderError, match="--state-dir"), locked(tmp_path / "file" / "state"):
        pass


def test_replicas_share_a_folder_and_keep_a_gateway_of_its_own_out(tmp_path: Path) -> None:
    with locked(tmp_path, shared=True), locked(tmp_path, shared=True):
        with replica_folder(tmp_path) as own, announced(own, "http://127.0.0.1:1/mcp", CONFIG):
            assert own == tmp_path / "replicas" / "1"
            assert find_running(tmp_path) == RunningGateway("http://127.0.0.1:1/mcp", os.getpid(), str(CONFIG))
            with pytest.raises(StateFolderError, match=r"http://127.0.0.1:1/mcp") as raised, locked(tmp_path):
                pass
            assert str(raised.value).endswith("; with `state.replicas: true` in its configuration, it shares this one.")
        assert find_running(tmp_path) is None
    with (
        locked(tmp_path),
        pytest.raises(StateFolderError, match=r"`state.replicas: true` in the configuration of both"),
        locked(tmp_path, shared=True),
    ):
        pass


def test_workers_share_a_folder_under_one_parent(tmp_path: Path) -> None:
    with workers_folder(tmp_path), locked(tmp_path, shared=True), replica_folder(tmp_path) as own:
        with announced(own, "http://127.0.0.1:1/mcp", CONFIG, os.getppid()):
            assert find_running(tmp_path) == RunningGateway("http://127.0.0.1:1/mcp", os.getppid(), str(CONFIG))
            with (
                pytest.raises(StateFolderError, match=rf"\(process {os.getppid()}\) .* --state-dir\.$"),
                workers_folder(tmp_path),
            ):
                pass
        assert replica_folders(tmp_path) == [own]
        with pytest.raises(StateFolderError, match="already uses"), locked(tmp_path):
            pass
    with workers_folder(tmp_path):
        pass


def test_a_replica_takes_the_first_place_that_is_free(tmp_path: Path) -> None:
    with replica_folder(tmp_path) as first:
        with replica_folder(tmp_path) as second:
            assert [first.name, second.name] == ["1", "2"]
            assert replica_folders(tmp_path) == [first, second]
        with replica_folder(tmp_path) as again:
            assert again == second
    assert replica_folders(tmp_path) == []
    with ExitStack() as places:
        for _ in range(MAX_REPLICAS):
            places.enter_context(replica_folder(tmp_path))
        with pytest.raises(StateFolderError, match="64 replicas"), replica_folder(tmp_path):
            pass
