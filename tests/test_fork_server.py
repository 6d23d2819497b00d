"""A process from the fork server is what a new interpreter would be, as far as its docstring promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server
from tests.gateway_process import gateway_process, own_environment
from tests.router.cli.commands import run_on_terminal

POINTSMAN = (sys.executable, "-P", "-m", "pointsman")
LONG_S = 60.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every start is an exec")


def run(folder: Path, *args: str, **options: Any) -> tuple[int, str, str]:
    environment = own_environment(folder) | {"POINTSMAN_STATE_DIR": "state"}
    streams = {"capture_output": True} | options
    done = subprocess.run((*POINTSMAN, *args), cwd=folder, env=environment, text=True, timeout=LONG_S, **streams)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("--help",), {}),
        (("no-such-command",), {}),
        (("config", "validate"), {}),  # of the folder
        (("config", "validate", "-"), {"input": "servers: {a: {comand: x}}"}),
        (("audit", "list", "--json"), {}),  # of the state folder in the environment
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_prints_and_exits_as_from_a_new_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], options: dict[str, Any]
) -> None:
    (tmp_path / "pointsman.yaml").write_text("servers: {clock: {command: true}}\n")
    forked = run(tmp_path, *args, **options)
    monkeypatch.setattr(fork_server, "enabled", False)
    assert forked == run(tmp_path, *args, **options)


@pytest.mark.parametrize(
    "args", [("--help",), ("import", "--dry-run", "servers.json"), ("token", "list")], ids=" ".join
)
async def test_a_command_shows_the_same_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    (tmp_path / "pointsman.yaml").write_text("servers: {clock: {command: true}}\n")
    (tmp_path / "servers.json").write_text('{"mcpServers": {"a": {"command": "true"}}}')
    forked = await run_on_terminal(tmp_path, *args)
    assert fork_server.servers
    monkeypatch.setattr(fork_server, "enabled", False)
    assert forked == await run_on_terminal(tmp_path, *args)


def test_output_that_cannot_be_written_fails_as_from_a_new_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    options = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
    forked = run(tmp_path, "--help", **options)
    monkeypatch.setattr(fork_server, "enabled", False)
    new = run(tmp_path, "--help", **options)
    os.close(full)
    assert forked[0] == new[0] != 0
    assert forked[2].splitlines()[-1] == new[2].splitlines()[-1]


async def test_a_gateway_is_a_child_with_its_own_streams_folder_and_nothing_else_open(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        proc = Path(f"/proc/{gateway.pid}")
        assert b"fork_server.py" in (proc / "cmdline").read_bytes()  # it did come from there
        parent, group, session = map(int, (proc / "stat").read_text().rpartition(")")[2].split()[1:4])
        assert (parent, group, session) == (os.getpid(), os.getpgid(0), os.getsid(0))
        assert Path(os.readlink(proc / "cwd")) == tmp_path
        assert os.readlink(proc / "fd/0") == "/dev/null"
        server = fork_server.servers["pointsman"].process.pid
        ours = {link for pid in (os.getpid(), server) for link in open_pipes(pid).values()}
        assert {fd for fd, link in open_pipes(gateway.pid).items() if link in ours} == {2}


def open_pipes(pid: int) -> dict[int, str]:
    """The pipes and sockets that a process has open, by descriptor."""
    found: dict[int, str] = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found[int(fd.name)] = os.readlink(fd)
    return {fd: link for fd, link in found.items() if link.startswith(("pipe:", "socket:"))}


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda which: which.name)
async def test_a_signal_ends_it_and_the_exit_code_says_so(tmp_path: Path, which: signal.Signals) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        assert await gateway.stop(which) == (-which if which is signal.SIGKILL else 0)


@pytest.mark.new_interpreter
async def test_a_marked_test_starts_a_new_interpreter(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        command = Path(f"/proc/{gateway.pid}/cmdline").read_bytes().split(b"\0")
        assert command[:5] == [*map(os.fsencode, POINTSMAN), b"serve"]
