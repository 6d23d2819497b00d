from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.stderr_log import RING_BYTES, StderrLog, sanitize
from pointsman.router.downstream.stdio.child import Child, Command, SystemProcesses
from pointsman.router.downstream.stdio.environment import ALWAYS, child_environment
from tests.router.downstream.stdio_parts import SHORT_GRACE, command, stdio, text, tool_call

IGNORES_EVERYTHING = ("--ignore-term", "--ignore-eof")


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """uvloop is what the daemon runs; asyncio is what it falls back to."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Owner:
    def __init__(self) -> None:
        self.output = b""
        self.stderr = StderrLog()
        self.begin = 0
        self.gone_for: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def received(self, data: bytes) -> None:
        self.output += data

    def last_words(self) -> str:
        return self.stderr.cause(self.begin)

    def exited(self, reason: str) -> None:
        self.gone_for.set_result(reason)


@asynccontextmanager
async def running(*argv: str) -> AsyncIterator[tuple[Child, Owner]]:
    owner = Owner()
    child = await SystemProcesses(None, SHORT_GRACE)(Command(argv or ("cat",)), owner)
    try:
        yield child, owner
    finally:
        child.kill()
        await owner.gone_for


def alive(pid: int) -> bool:
    """A zombie that waits for somebody else to collect it counts as dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def unknown(pid: int) -> bool:
    """Not even a zombie is left."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(30):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.02)


async def pids_in(file: Path) -> list[int]:
    async with asyncio.timeout(30):
        while not file.exists():
            await asyncio.sleep(0.02)
    return [int(word) for word in file.read_text().split()]


async def test_a_child_that_ends_at_the_end_of_its_input_is_not_signalled() -> None:
    async with running("sh", "-c", "cat; echo bye") as (child, owner):
        await child.stop()
        assert await owner.gone_for == "it exited with code 0"
        assert owner.output == b"bye\n"
        assert unknown(child.pid)


async def test_a_child_that_ignores_all_requests_is_killed_with_its_group(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    owner = Owner()
    switches = (*IGNORES_EVERYTHING, "--grandchild", "group", "--pids", str(file))
    child = await SystemProcesses(None, SHORT_GRACE)(command(*switches), owner)
    pids = await pids_in(file)
    async with asyncio.timeout(30):
        await asyncio.gather(child.stop(), child.stop())
    assert await owner.gone_for == "it was ended by SIGKILL"
    assert pids[0] == child.pid
    assert unknown(child.pid)
    await until_gone(*pids)


async def test_a_dead_child_takes_its_group_along_at_once(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with stdio("--grandchild", "group", "--pids", str(file)) as connection:
        with pytest.raises(ConnectionLostError):
            await connection.request(tool_call("killed"))
        await until_gone(*await pids_in(file))


async def test_a_detached_process_that_holds_the_pipe_does_not_hide_the_childs_death(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with stdio("--grandchild", "detached", "--pids", str(file)) as connection:
        async with asyncio.timeout(30):
            with pytest.raises(ConnectionLostError, match="it was ended by SIGKILL"):
                await connection.request(tool_call("killed"))
    os.kill((await pids_in(file))[1], 9)


async def test_a_child_that_closes_its_output_is_ended() -> None:
    async with stdio("--ignore-term", "--ignore-eof") as connection:
        facts = await connection.request(tool_call("environment"))
        async with asyncio.timeout(30):
            with pytest.raises(ConnectionLostError, match="closed its output"):
                await connection.request(tool_call("close_stdout"))
        await until_gone(facts["structuredContent"]["pid"])


async def test_what_a_child_says_last_is_heard_before_its_end() -> None:
    async with running("sh", "-c", "echo first; echo last; echo why >&2; exit 7") as (_, owner):
        assert await owner.gone_for == "it exited with code 7"
        assert owner.output == b"first\nlast\n"


async def test_a_child_has_a_small_environment_and_nothing_else_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTSMAN_REQUEST_KEY", "secret of ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of the operator")
    with open(tmp_path / "handle", "w") as handle:
        os.set_inheritable(handle.fileno(), True)
        async with stdio(TZ="Europe/Vienna") as connection:
            facts = (await connection.request(tool_call("environment")))["structuredContent"]
    assert "secret" not in str(facts["env"])
    assert facts["env"]["TZ"] == "Europe/Vienna"
    assert facts["env"]["PATH"] == os.environ["PATH"]
    assert set(facts["env"]) <= ALWAYS | {"LC_CTYPE"}
    assert facts["fds"][:3] == [0, 1, 2]
    assert len(facts["fds"]) == 4, "the fourth is the listing of the folder itself"
    assert facts["sid"] == facts["pid"], "a session of its own"


def test_the_environment_is_what_a_program_needs_and_what_its_entry_says() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "POINTSMAN_TOKEN": "x", "GITHUB_TOKEN": "y", "HOME": "/root"}
    assert child_environment(ours, {"HOME": "/srv", "KEY": "1"}) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/srv",
        "KEY": "1",
    }


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (Command(("no-such-program-here",)), "`no-such-program-here` cannot be started: there is no such program"),
        (Command(("/no/such/folder/program",)), "`program` cannot be started: there is no such program"),
        (Command((str(Path(__file__)),)), "cannot be started: it is not executable"),
        (Command(("cat",), cwd=Path("/no/such/folder")), "`cat` cannot be started: its `cwd` is not a folder"),
        (Command(("cat", "a\0b")), "`cat` cannot be started: its arguments or environment hold a NUL"),
    ],
)
async def test_a_program_that_cannot_be_started_is_named_without_its_folder(what: Command, words: str) -> None:
    with pytest.raises(ConnectionLostError) as caught:
        await SystemProcesses(None)(what, Owner())
    assert words in str(caught.value)
    assert "/" not in str(caught.value)


async def test_cancelling_a_start_leaves_no_process_behind(tmp_path: Path) -> None:
    file, turns = tmp_path / "pids", -1
    for pause_s in (0.0,) * 6 + (0.001, 0.002, 0.004, 0.008):  # also while the thread that starts it has not returned
        turns += 1
        starting = asyncio.ensure_future(
            SystemProcesses(None)(command(*IGNORES_EVERYTHING, "--mute", "--pids", str(file)), Owner())
        )
        for _ in range(turns):  # cancelled at each of the first steps of a start
            await asyncio.sleep(pause_s)
        starting.cancel()
        outcome = (await asyncio.gather(starting, return_exceptions=True))[0]
        if not isinstance(outcome, BaseException):
            outcome.kill()
    await asyncio.sleep(0.3)
    if file.exists():
        await until_gone(*await pids_in(file))


async def test_the_working_folder_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    owner = Owner()
    await SystemProcesses(None)(Command(("pwd",), cwd=tmp_path), owner)
    await owner.gone_for
    assert owner.output.decode().strip() == str(tmp_path)


async def test_a_flood_of_stderr_is_read_and_forgotten() -> None:
    async with stdio() as connection:
        result = await connection.request(tool_call("flood_stderr", {"bytes": 20 << 20}))
        assert text(result) == "done"
        log = connection.stderr
        async with asyncio.timeout(30):
            while log.total < 20 << 20:
                await asyncio.sleep(0.01)
        assert sum(map(len, log.tail(10_000))) <= RING_BYTES


async def test_a_servers_log_outlives_its_children_and_each_death_has_its_own_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = StderrLog("shop")
    for line in ("first", ""):
        owner = Owner()
        owner.stderr, owner.begin = log, log.total
        await SystemProcesses(None)(Command(("sh", "-c", f"printf '{line}' >&2; exit 1")), owner)
        assert await owner.gone_for == "it exited with code 1"
    assert log.tail(10) == ["first"]
    told = [record.getMessage() for record in caplog.records if record.name.endswith(".child")]
    assert told == ["server shop: it exited with code 1; it wrote: first"]


async def test_the_words_of_a_child_that_was_asked_to_end_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner()
    owner.stderr = StderrLog("shop")
    child = await SystemProcesses(None)(Command(("sh", "-c", "echo 'error: x' >&2; cat >/dev/null")), owner)
    async with asyncio.timeout(30):
        while not owner.stderr.total:
            await asyncio.sleep(0.01)
    await child.stop()
    assert await owner.gone_for == "it exited with code 0"
    assert not [record for record in caplog.records if record.name.endswith(".child")]


def test_the_ring_keeps_the_last_bytes_whatever_the_size_of_the_writes() -> None:
    log = StderrLog(limit_bytes=100)
    for number in range(1000):
        log.feed(b"%d\n" % number)
    assert log.tail(3) == ["997", "998", "999"]
    log.feed(b"x" * 1000 + b"\n  \nlast\n")
    assert log.last_line() == "last"
    assert log.tail(0) == []
    assert sum(map(len, log.tail(1000))) <= 100


def test_a_secret_whose_begin_was_dropped_from_the_ring_is_dropped_with_its_line() -> None:
    log = StderrLog(limit_bytes=100)
    log.hidden = ("correct horse battery",)
    log.feed(b"x" * 50 + b" the password is correct horse battery, " + b"y" * 50 + b"\nit is correct horse battery\n")
    assert log.tail(10) == ["it is ***"]


def test_what_is_shown_of_stderr_cannot_move_the_cursor_or_forge_a_line() -> None:
    log = StderrLog()
    log.feed("\x1b[2Jgone\x07\u202eecilop\u2028x\x9b".encode() + b"\xff" + b"y" * 5000)
    shown = log.last_line()
    assert shown.isprintable()
    assert "\x1b" not in shown
    assert len(shown) < 600
    assert sanitize("a\tb\r\n") == "a b��"


async def test_what_a_child_wrote_is_not_part_of_the_reason_which_reaches_clients() -> None:
    code = "import sys; sys.exit('cannot open /srv/secret/place/data.json with password=hunter2')"
    async with running(sys.executable, "-c", code) as (_, owner):
        assert await owner.gone_for == "it exited with code 1"
