"""Real servers that try to get out, under bubblewrap and under Landlock, as the user of the tests and as nobody."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.config.sections.server import Sandbox, ServerLimits
from pointsman.router.downstream.connection import Call, ConnectionLostError
from pointsman.router.downstream.stderr_log import StderrLog
from pointsman.router.downstream.stdio import landlock
from pointsman.router.downstream.stdio.child import Command, StopGrace, SystemProcesses
from pointsman.router.downstream.stdio.connection import connect_stdio
from pointsman.router.downstream.stdio.launch import FILTER_HANDLE, Confined, Launch
from pointsman.router.downstream.stdio.sandbox import Host, delete_unused, plan, this_host
from tests.router.downstream.stdio_parts import text

SERVER = Path(__file__).parents[3] / "servers" / "escaping_server.py"
SYSTEM_PYTHON = "/usr/bin/python3"  # one that nobody can run, too
NOBODY = 65534
MIB = 1 << 20
GRACE = StopGrace(stdin_s=0.3, term_s=10)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")
MECHANISMS = pytest.mark.parametrize("mechanism", ["bubblewrap", "landlock"])
USERS = pytest.mark.parametrize("user", ["own", "nobody"])


def host_of(mechanism: str) -> Host:
    host = this_host()
    if mechanism == "bubblewrap":
        if host.bwrap is None:
            pytest.skip(f"{host.bwrap_problem} (`make sandbox` installs it)")
        return host
    if host.abilities["abi"] < landlock.MIN_ABI:
        pytest.skip(f"this kernel has Landlock {host.abilities['abi']}; {landlock.MIN_ABI} is needed")
    if host.abilities["network_namespace"]:
        pytest.skip(f"no network namespace here: {host.abilities['network_namespace']}")
    return replace(host, bwrap=None, bwrap_problem="bubblewrap is not installed")


@dataclass
class Place:
    """A folder that the user owns, with things in it that no sandbox may reach, and what listens outside."""

    folder: Path
    user: str
    tcp: int
    udp: int
    abstract: str
    other: subprocess.Popen[bytes]  # another server

    @property
    def user_argv(self) -> tuple[str, ...]:
        if self.user == "own":
            return ()
        return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

    def launch(self, host: Host, sandbox: Sandbox | None, limits: ServerLimits | None = None) -> Launch:
        host = replace(host, launcher=(SYSTEM_PYTHON, *host.launcher[1:]), root=host.root and self.user == "own")
        host = replace(host, temporary=str(self.folder / "temporary"))
        argv, env = (
            (SYSTEM_PYTHON, "-I", "-S", str(SERVER)),
            {"HOME": str(self.folder / "home"), "PATH": "/usr/bin:/bin"},
        )
        return plan(argv, env, None, Confined(sandbox, limits), host, (self.folder / "state",))

    def tried(self, launch: Launch, *attempts: tuple[Any, ...]) -> list[list[Any]]:
        """Start the server, have it try, and return what each attempt gave."""
        with ExitStack() as stack:
            argv, handles = list(launch.argv), []
            if launch.filter is not None:
                file = stack.enter_context(tempfile.TemporaryFile())
                file.write(launch.filter)
                file.seek(0)
                handles = [file.fileno()]
                argv = [str(handles[0]) if each == FILTER_HANDLE else each for each in argv]
            call = {"id": 1, "method": "tools/call", "params": {"arguments": {"attempts": attempts}}}
            done = subprocess.run(
                [*self.user_argv, *argv],
                input=json.dumps(call).encode(),
                capture_output=True,
                env=launch.env,
                cwd=launch.cwd,
                pass_fds=handles,
                check=False,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr.decode()
        assert b"the escaping server has started" in done.stderr
        results: list[list[Any]] = json.loads(json.loads(done.stdout)["result"]["content"][0]["text"])
        return results

    def free(self) -> Launch:
        return Launch((SYSTEM_PYTHON, "-I", "-S", str(SERVER)), {"PATH": "/usr/bin:/bin"}, Path("/"))


@pytest.fixture(params=["own", "nobody"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from _place(request.param)


def _place(user: str) -> Iterator[Place]:
    if not Path(SYSTEM_PYTHON).exists():
        pytest.skip(f"no {SYSTEM_PYTHON}")
    if user == "nobody" and (os.geteuid() != 0 or shutil.which("setpriv") is None):
        pytest.skip("only root can start a server as nobody")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandbox-")))
        for name in ("state/owner.key", "home/.ssh/id", "in/data", "out/mine", "elsewhere/file", "temporary/x"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("secret")
        listeners = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        abstract = f"pointsman-{folder.name}"
        for one, address in zip(listeners, (f"{folder}/state/s", f"{folder}/in/s", "\0" + abstract), strict=True):
            stack.enter_context(one)
            one.bind(address)
            one.listen(50)
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.bind(f"{folder}/in/d")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=50))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        threading.Thread(target=_echo, args=(udp,), daemon=True).start()
        if user == "nobody":
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        place = Place(folder, user, tcp.getsockname()[1], udp.getsockname()[1], abstract, None)  # type: ignore[arg-type]
        argv = [*place.user_argv, "/bin/sleep", "600"]
        place.other = subprocess.Popen(argv, env={"PASSWORD": "of another server"}, start_new_session=True)
        stack.callback(place.other.wait)
        stack.callback(place.other.kill)
        yield place


def _echo(udp: socket.socket) -> None:
    try:
        while True:
            data, address = udp.recvfrom(100)
            udp.sendto(data, address)
    except OSError:
        return


def attacks(place: Place) -> list[tuple[Any, ...]]:
    """In this order: what follows a change of a file must not depend on it."""
    folder, other = str(place.folder), place.other.pid
    return [
        ("read", f"{folder}/state/owner.key"),
        ("listing", f"{folder}/state"),
        ("unix", f"{folder}/state/s"),
        ("read", f"{folder}/home/.ssh/id"),
        ("read", f"/proc/{other}/environ"),
        ("read", f"/proc/{other}/cmdline"),
        ("send_signal", other),
        ("limit_of", other),
        ("unix", f"@{place.abstract}"),
        ("unix", f"{folder}/in/s"),  # in a folder that it may read
        ("datagram_pair", f"{folder}/in/d"),
        ("change_mode", f"{folder}/in/data"),
        ("append", f"{folder}/in/data"),
        ("truncate", f"{folder}/in/data"),
        ("append", f"{folder}/elsewhere/file"),
        ("link", f"{folder}/home/.ssh/id", f"{folder}/out/link"),
        ("remove", f"{folder}/elsewhere/file"),
    ]


@MECHANISMS
def test_a_server_that_tries_does_not_get_out(place: Place, mechanism: str) -> None:
    host = host_of(mechanism)
    online: list[tuple[Any, ...]] = [("tcp", place.tcp), ("udp", place.udp)]
    sandbox = Sandbox(read=(place.folder / "in",), write=(place.folder / "out",))
    tried = [*attacks(place), *online, ("io_uring",), ("keyring",), ("family", 40)]
    results = place.tried(place.launch(host, sandbox), *tried)
    assert [(one, result) for one, result in zip(tried, results, strict=True) if result[0] != "refused"] == []
    assert (place.folder / "elsewhere" / "file").read_text() == "secret"
    assert (place.folder / "in" / "data").read_text() == "secret"

    with_network = place.tried(place.launch(host, replace_network(sandbox)), *online, *attacks(place))
    assert [result[0] for result in with_network[:2]] == ["ok", "ok"]
    assert {result[0] for result in with_network[2:]} == {"refused"}

    free = place.tried(place.free(), *online, *attacks(place))  # the same user can do all of it without a sandbox
    assert [one for one, result in zip([*online, *attacks(place)], free, strict=True) if result[0] != "ok"] == []


def replace_network(sandbox: Sandbox) -> Sandbox:
    return sandbox.model_copy(update={"network": True})


@MECHANISMS
def test_a_server_can_do_its_work_in_a_sandbox(place: Place, mechanism: str) -> None:
    sandbox = Sandbox(read=(place.folder / "in",), write=(place.folder / "out",))
    tried = (
        ("read", str(place.folder / "in" / "data")),
        ("write", str(place.folder / "out" / "new")),
        ("temporary",),
        ("own_pair",),
        ("own_loopback",),
        ("child", "/bin/cat", "/etc/hosts"),
        ("read", "/dev/urandom"),
        ("write", "/dev/null"),
        ("read", "/proc/self/status"),
        ("read", "/proc/meminfo"),
    )
    results = place.tried(place.launch(host_of(mechanism), sandbox), *tried)
    assert [(one, result) for one, result in zip(tried, results, strict=True) if result[0] != "ok"] == []
    assert (place.folder / "out" / "new").read_text() == "written"
    assert not Path("/tmp/own").exists()


@MECHANISMS
def test_no_handle_but_its_pipes_and_no_capability_is_inherited(place: Place, mechanism: str) -> None:
    launch = place.launch(host_of(mechanism), Sandbox())
    [[_, [_, _, handles]], [_, capabilities]] = place.tried(launch, ("own_process",), ("capabilities",))
    assert capabilities[:3] == [0, 0, 0]  # inheritable, permitted, effective
    held = 1 if mechanism == "landlock" else 0  # the lock on its temporary folder
    assert len(handles) == 3 + held + 1  # and the folder that it lists


@MECHANISMS
@pytest.mark.parametrize("confined", [True, False])
def test_memory_and_processes_are_limited(mechanism: str, confined: bool) -> None:
    for place in _place("nobody" if os.geteuid() == 0 else "own"):
        limits = ServerLimits(memory=300 * MIB, processes=12)
        launch = place.launch(host_of(mechanism), Sandbox() if confined else None, limits)
        small, large, children = place.tried(launch, ("memory", 50 * MIB), ("memory", 400 * MIB), ("children", 100))
        assert small == ["ok", None]
        assert large == ["refused", "ENOMEM"]
        assert children == ["ok", [11, "EAGAIN"]]  # itself is the twelfth
        free = place.tried(place.free(), ("memory", 400 * MIB), ("children", 100))
        assert free == [["ok", None], ["ok", [100, ""]]]


# ---------------------------------------------------------------------- its life


@pytest.fixture(params=["bubblewrap", "landlock"])
def mechanism(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Without bubblewrap on the PATH it is not installed."""
    host_of(request.param)
    if request.param == "landlock":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "rm").symlink_to(shutil.which("rm") or "")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return str(request.param)


def escaping(out: Path, *switches: str, sandbox: Sandbox | None = None) -> Command:
    argv = (sys.executable, "-I", "-S", str(SERVER), *switches)
    return Command(argv, {"MARK": f"of-{out}"}, confined=Confined(sandbox or Sandbox(write=(out,))))


def marked(out: Path) -> list[int]:
    """The processes of a server that are alive."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and f"MARK=of-{out}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            pass
    return found


async def until_gone(out: Path) -> None:
    async with asyncio.timeout(20):
        while marked(out):
            await asyncio.sleep(0.05)


async def test_its_answers_and_its_stderr_arrive_and_sigterm_reaches_it(mechanism: str, tmp_path: Path) -> None:
    out, log = tmp_path / "out", StderrLog()
    out.mkdir()
    connection = await connect_stdio(
        escaping(out, "--stubborn", "--note", str(out / "note")),
        starter=SystemProcesses(None, GRACE, protected=(tmp_path / "state",)),
        era="legacy",
        limits=Limits(),
        on_notification=lambda *_: None,
        stderr=log,
    )
    result = await connection.request(Call("tools/call", {"name": "try", "arguments": {"attempts": [["temporary"]]}}))
    [[outcome, [path, _]]] = json.loads(text(result))
    assert outcome == "ok"
    assert log.tail(1) == ["the escaping server has started"]
    assert marked(out)
    await connection.close()
    assert (out / "note").read_text() == "written"  # it could end in its own time
    await until_gone(out)
    async with asyncio.timeout(20):
        while Path(path).exists():
            await asyncio.sleep(0.05)


async def test_a_child_that_is_killed_takes_all_of_its_processes_along(mechanism: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    connection = await connect_stdio(
        escaping(out, "--stubborn", "--note", "/nowhere"),
        starter=SystemProcesses(None, StopGrace(stdin_s=0.1, term_s=0.1)),
        era="legacy",
        limits=Limits(),
        on_notification=lambda *_: None,
    )
    connection._child.kill()  # type: ignore[union-attr]
    assert "SIGKILL" in await connection.ended()
    await until_gone(out)
    await connection.close()


DAEMON = """
import asyncio, sys
from pathlib import Path
from pointsman.router.downstream.stdio.guard import Guard
from pointsman.router.downstream.stdio.child import SystemProcesses
from tests.router.downstream.stdio.test_child import Owner
from tests.router.downstream.stdio.test_sandbox import escaping

async def main():
    guard = Guard()
    await guard.start()
    out = Path(sys.argv[1])
    switches = ("--stubborn", "--note", "/nowhere", "--started", str(out / "started"))
    await SystemProcesses(guard)(escaping(out, *switches), Owner())
    print(flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_after_kill_9_of_the_daemon_nothing_is_left(mechanism: str, tmp_path: Path) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    out.mkdir()
    temporary.mkdir()
    daemon = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", DAEMON, str(out)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[4],
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert daemon.stdout is not None
    assert await daemon.stdout.readline()
    async with asyncio.timeout(20):
        while not (out / "started").exists():
            await asyncio.sleep(0.05)
    assert marked(out)
    daemon.send_signal(signal.SIGKILL)
    await daemon.wait()
    await until_gone(out)
    assert len(list(temporary.iterdir())) == (1 if mechanism == "landlock" else 0)
    async with asyncio.timeout(20):
        while list(temporary.iterdir()):  # the lock is released a moment after the process has lost its environment
            delete_unused(str(temporary))  # as the next gateway does
            await asyncio.sleep(0.05)


def test_a_temporary_folder_in_use_is_not_deleted(tmp_path: Path) -> None:
    import fcntl

    for name in ("a", "b"):
        (tmp_path / f"{landlock.TEMPORARY}{name}" / "deep").mkdir(parents=True)
    used = os.open(tmp_path / f"{landlock.TEMPORARY}a", os.O_RDONLY)
    try:
        fcntl.flock(used, fcntl.LOCK_SH)
        delete_unused(str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == [f"{landlock.TEMPORARY}a"]
    finally:
        os.close(used)


HOST_WITHOUT_NAMESPACES = """
from pointsman.config.sections.server import Sandbox
from pointsman.router.downstream.stdio.launch import Confined, SandboxRefusedError
from pointsman.router.downstream.stdio.sandbox import plan, this_host

for network in (True, False):
    try:
        print(plan(("/bin/sh",), {"PATH": "/bin"}, None, Confined(Sandbox(network=network)), this_host()).how)
    except SandboxRefusedError as error:
        print(error)
"""


def test_where_the_kernel_gives_no_namespaces_landlock_is_used_but_not_without_a_network(tmp_path: Path) -> None:
    """As in a container of Docker. The limit holds in a user namespace of the test's own."""
    host_of("landlock")
    forbid = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--map-root-user", "sh", "-c", forbid, "sh", sys.executable, "-c", HOST_WITHOUT_NAMESPACES]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
    with_network, without = done.stdout.splitlines()
    assert with_network.startswith("Landlock ")
    assert "`network: false` cannot be enforced" in without
    assert "UDP and unix sockets" in without


async def test_what_cannot_be_enforced_is_not_started(tmp_path: Path) -> None:
    out = tmp_path / "state" / "out"
    out.mkdir(parents=True)
    starter = SystemProcesses(None, protected=(tmp_path / "state",))
    with pytest.raises(ConnectionLostError, match=r"path 1 of `sandbox\.write` would let it reach the state folder"):
        await connect_stdio(
            escaping(out), starter=starter, era="legacy", limits=Limits(), on_notification=lambda *_: None
        )
    assert not marked(out)
