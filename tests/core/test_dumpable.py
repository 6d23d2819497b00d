"""What a stdio server can read of the gateway that started it, both under one ordinary user."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.dumpable import make_non_dumpable
from tests.gateway_process import own_environment

LIMIT_S = 60.0
SECRET = "only-the-gateway-knows-this"
SPY = """
import json, os, sys

def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def attempt(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().decode(errors="replace") if name == "environ" else "opened"
    except OSError as error:
        return type(error).__name__

found, pid = [], os.getppid()
while pid > 1:
    found.append({"pid": pid, "environ": attempt(pid, "environ"), "mem": attempt(pid, "mem")})
    pid = parent_of(pid)
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(found, file)
os.replace(sys.argv[1] + ".new", sys.argv[1])
sys.stdin.read()
"""

pytestmark = [
    pytest.mark.new_interpreter,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


def as_ordinary_user() -> list[str]:
    """In front of a command: a user without CAP_SYS_PTRACE, who may still read the checkout."""
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv to leave root")
    caps = "+dac_read_search,+dac_override"
    return [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={caps}", f"--ambient-caps={caps}"]


@pytest.fixture
def spied(tmp_path: Path) -> Path:
    """A folder with a configuration whose only server reports what it could read of its ancestors."""
    (tmp_path / "spy.py").write_text(SPY)
    spy = {"command": sys.executable, "args": ["-S", str(tmp_path / "spy.py"), str(tmp_path / "report.json")]}
    config = {"servers": {"spy": spy}}
    (tmp_path / "pointsman.yaml").write_text(json.dumps(config))
    if os.getuid() == 0:
        os.chown(tmp_path, 65534, 65534)
    return tmp_path


async def report_of(folder: Path, *command: str) -> dict[int, dict[str, Any]]:
    """What the server saw of each ancestor, by process id; the gateway's is under 0."""
    log = folder / "stderr.log"
    with log.open("w") as stderr:
        process = await asyncio.create_subprocess_exec(
            *as_ordinary_user(),
            *(sys.executable, "-P", "-m", "pointsman", *command),
            # relative: pytest's own folders are private to root
            *("--config", "pointsman.yaml", "--state-dir", "state"),
            cwd=folder,
            env=own_environment(folder) | {"SECRET_OF_THE_GATEWAY": SECRET, "POINTSMAN_TOKEN": "ptm_" + "x" * 43},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    try:
        async with asyncio.timeout(LIMIT_S):
            if command[0] == "stdio":
                assert process.stdin is not None
                process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            while not (folder / "report.json").exists():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        seen = {each["pid"]: each for each in json.loads((folder / "report.json").read_text())}
        return {0: seen[process.pid], **seen}
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("stdio",)], ids=["serve", "stdio"])
async def test_a_stdio_server_cannot_read_the_environment_or_memory_of_the_gateway(
    spied: Path, command: tuple[str, ...]
) -> None:
    gateway = (await report_of(spied, *command))[0]
    assert SECRET not in gateway["environ"]
    assert gateway["environ"] == gateway["mem"] == "PermissionError"


def test_the_spy_would_read_the_environment_of_an_ordinary_parent(spied: Path) -> None:
    """So that the test above cannot pass for a reason of its own."""
    starts_it = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-S', 'spy.py', {str(spied / 'report.json')!r}])"
    )
    command = [*as_ordinary_user(), sys.executable, "-c", starts_it]
    subprocess.run(command, cwd=spied, env={"SECRET_OF_THE_GATEWAY": SECRET}, stdin=subprocess.DEVNULL, check=True)
    assert SECRET in json.loads((spied / "report.json").read_text())[0]["environ"]


def test_a_non_dumpable_process_still_lists_its_handles() -> None:
    """`subprocess` closes what a child must not inherit by this list; without it, it would try every number."""
    code = (
        "import os; from pointsman.core.dumpable import make_non_dumpable; assert make_non_dumpable();"
        "print(len(os.listdir('/proc/self/fd')))"
    )
    done = subprocess.run([*as_ordinary_user(), sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 3


def test_a_system_without_prctl_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_libc(name: object) -> object:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", no_libc)
    assert make_non_dumpable() is False


async def test_the_environment_of_the_bundled_archive_is_as_private(tmp_path: Path) -> None:
    """It holds the keys of embedding providers, and other servers run beside it as the same user."""
    process = await asyncio.create_subprocess_exec(
        *as_ordinary_user(),
        *(sys.executable, "-P", "-m", "pointsman.archive"),
        cwd=tmp_path,
        env={"OPENAI_API_KEY": SECRET},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        async with asyncio.timeout(LIMIT_S):
            await process.stdout.readline()
        sibling = [*as_ordinary_user(), "cat", f"/proc/{process.pid}/environ"]
        seen = await asyncio.to_thread(subprocess.run, sibling, capture_output=True, text=True)
    finally:
        process.kill()
        await process.wait()
    assert SECRET not in seen.stdout
    assert "Permission denied" in seen.stderr
