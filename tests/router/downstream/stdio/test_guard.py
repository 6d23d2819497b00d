from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.router.downstream.stdio.child import SystemProcesses
from pointsman.router.downstream.stdio.guard import PROGRAM, Guard
from tests.router.downstream.stdio.test_child import Owner, alive, pids_in, until_gone
from tests.router.downstream.stdio_parts import SERVER, SHORT_GRACE, command

STUBBORN = ("--ignore-term", "--ignore-eof", "--mute")

DAEMON = """
import asyncio, sys
from pathlib import Path
from pointsman.router.downstream.stdio.guard import Guard
from pointsman.router.downstream.stdio.child import Command, SystemProcesses
from pointsman.router.downstream.stderr_log import StderrLog

class Owner:
    stderr = StderrLog()
    def received(self, data): ...
    def last_words(self): return ""
    def exited(self, reason): ...

async def main():
    guard = Guard()
    await guard.start()
    await SystemProcesses(guard)(Command((sys.executable, "-I", "-S", *sys.argv[1:])), Owner())
    print(guard.pid, flush=True)
    await asyncio.sleep(600)

if sys.argv.pop(1) == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", ["group", "detached"])
async def test_after_kill_9_of_the_daemon_nothing_is_left(tmp_path: Path, loop: str, kind: str) -> None:
    file = tmp_path / "pids"
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DAEMON, loop, str(SERVER), *STUBBORN, "--grandchild", kind, "--pids", str(file)),
        stdout=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    guard = int(await daemon.stdout.readline())
    pids = await pids_in(file)
    assert all(map(alive, [*pids, guard]))
    daemon.kill()
    await daemon.wait()
    async with asyncio.timeout(30):
        await until_gone(*pids, guard)


async def test_the_guard_ignores_the_signals_that_end_a_daemon(sleeper: subprocess.Popen[bytes]) -> None:
    guard = Guard()
    await guard.start()
    assert guard.pid is not None
    guard.watch(sleeper.pid)
    assert os.getsid(guard.pid) == guard.pid, "Ctrl-C in the terminal does not reach it"
    await ignoring(guard.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard.pid, number)
    assert await ended_by(guard, sleeper) == -signal.SIGTERM


async def ended_by(guard: Guard, process: subprocess.Popen[bytes]) -> int:
    """Close the guard's pipe, and collect the process at once: the guard takes a zombie for somebody who hesitates."""
    code, _ = await asyncio.gather(asyncio.to_thread(process.wait, 30), guard.close())
    return code


async def ignoring(pid: int) -> None:
    """Wait until the guard has set up its signals."""
    async with asyncio.timeout(30):
        while True:
            status = Path(f"/proc/{pid}/status").read_text()
            if int(status.split("SigIgn:")[1].split()[0], 16) & 1 << signal.SIGTERM - 1:
                return
            await asyncio.sleep(0.01)


async def test_a_group_that_was_reported_over_is_never_killed(sleeper: subprocess.Popen[bytes]) -> None:
    guard = Guard()
    await guard.start()
    guard.watch(sleeper.pid)
    guard.forget(sleeper.pid)
    guard.forget(sleeper.pid)
    await guard.close()
    assert sleeper.poll() is None


def test_a_number_with_a_new_owner_is_not_killed(sleeper: subprocess.Popen[bytes]) -> None:
    """The guard learns of the group when its leader is already somebody else: arranged with a false birth date."""
    code = (
        f"import runpy; guard = runpy.run_path({str(PROGRAM)!r});guard['end_all']({{{sleeper.pid}: b'1'}}, b'NO=MARK')"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)
    assert sleeper.poll() is None


async def test_a_guard_that_dies_is_started_again_and_told_everything(sleeper: subprocess.Popen[bytes]) -> None:
    guard = Guard()
    await guard.start()
    guard.watch(sleeper.pid)
    first = guard.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(30):
        while guard.pid == first or guard.pid is None:
            await asyncio.sleep(0.01)
    assert await ended_by(guard, sleeper) == -signal.SIGTERM


async def test_a_child_is_reported_while_it_lives_and_no_longer(tmp_path: Path) -> None:
    guard = Guard()
    await guard.start()
    owner = Owner()
    child = await SystemProcesses(guard, SHORT_GRACE)(command(), owner)
    assert child.pid in guard.groups
    await child.stop()
    assert guard.groups == set()
    await guard.close()


async def test_a_child_that_the_daemon_had_no_time_to_report_is_found_by_its_mark() -> None:
    guard = Guard()
    await guard.start()
    name, value = guard.mark
    env = {**os.environ, name: value}
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, env=env)
    assert await ended_by(guard, process) == -signal.SIGTERM


async def test_the_guard_is_small() -> None:
    guard = Guard()
    await guard.start()
    assert guard.pid is not None
    await ignoring(guard.pid)
    status = Path(f"/proc/{guard.pid}/status").read_text()
    await guard.close()
    assert int(status.split("VmRSS:")[1].split()[0]) < 12_000  # KiB; most of it is shared with the daemon
