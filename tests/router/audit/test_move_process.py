"""A long journal is moved by a process of its own, and by the daemon itself where that fails."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.router.audit.compaction.compaction import LONG_SEGMENTS, auditing, last_seq_in
from pointsman.router.audit.compaction.move_process import MoveProcess
from pointsman.router.audit.database import FILE, databases_set_aside, open_to_read
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.segments import FOLDER, list_segments
from pointsman.router.audit.store import Store
from tests.router.audit.samples import request, rows


class Run:
    """A journal with one call to a segment, and the process that moves it."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.journal = Journal(state_dir / FOLDER, segment_bytes=1)
        self.log = AuditLog(self.journal)
        self.process = MoveProcess(state_dir)

    def calls(self, *names: str) -> None:
        for name in names:
            self.log.begin(request(name), "execute", tool_key="a:b", server_id="a").finish("ok")
        self.log.housekeep()

    def move(self) -> None:
        position = self.journal.position
        assert position is not None
        self.process.move(position)

    def segments(self) -> int:
        return len(list_segments(self.state_dir / FOLDER))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.process.close()
    run.log.close()


def stored(state_dir: Path) -> list[str]:
    connection = open_to_read(state_dir / FILE)
    if connection is None:
        return []
    try:
        return [name for (name,) in connection.execute("SELECT request_id FROM audit ORDER BY seq")]
    finally:
        connection.close()


def test_it_moves_the_closed_segments_and_stays_for_the_next(run: Run) -> None:
    run.calls("a", "b", "c")
    before = rows(run.state_dir)
    run.move()
    assert stored(run.state_dir) == ["a", "b", "c"]
    assert run.segments() == 1
    assert rows(run.state_dir) == before
    pid = run.process.pid
    run.calls("d")
    run.move()
    assert stored(run.state_dir) == ["a", "b", "c", "d"]
    assert run.process.pid == pid


def test_it_gives_way_to_calls_and_does_not_hear_the_terminal(run: Run) -> None:
    run.process = MoveProcess(run.state_dir, idle_time_s=60.0)
    run.calls("a")
    run.move()
    pid = run.process.pid
    assert pid is not None
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE
    assert os.getpgid(pid) != os.getpgid(0)


def test_it_does_not_wait_for_idle_time_forever(run: Run) -> None:
    run.process = MoveProcess(run.state_dir, idle_time_s=0.0)
    run.calls("a", "b")
    run.move()
    assert run.process.pid is not None
    assert os.sched_getscheduler(run.process.pid) == os.SCHED_OTHER
    assert stored(run.state_dir) == ["a", "b"]


def test_a_killed_one_is_replaced_and_loses_nothing(run: Run) -> None:
    run.calls("a")
    run.move()
    killed = run.process.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    run.calls("b", "c")
    run.move()  # or the next one, if its end was not noticed yet
    run.move()
    assert run.process.pid not in (killed, None)
    assert stored(run.state_dir) == ["a", "b", "c"]


def test_one_that_has_exited_is_reaped(run: Run) -> None:
    run.calls("a")
    run.move()
    pid = run.process.pid
    assert pid is not None
    run.process.reap()
    assert run.process.pid == pid  # it still runs
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    run.process.reap()
    assert run.process.pid is None
    assert not Path(f"/proc/{pid}").exists()


def test_an_interrupted_move_returns_and_says_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.calls("a")
    run.process.interrupt()
    run.move()
    assert run.process.pid is None
    assert run.segments() == 2
    assert caplog.messages == []


def test_one_that_does_not_answer_is_ended_and_the_journal_stays(run: Run) -> None:
    run.calls("a")
    run.move()
    stopped = run.process.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    run.process._idle_time_s = run.process._answer_s = 0.05
    run.calls("b")
    run.move()
    assert run.process.pid is None
    assert run.segments() == 2
    assert [row.request_id for row in rows(run.state_dir)] == ["a", "b"]


def test_it_leaves_an_error_to_the_daemon(run: Run) -> None:
    run.calls("a")
    run.move()
    connection = sqlite3.connect(run.state_dir / FILE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    run.process.close()
    run.calls("b")
    run.move()
    assert run.process.pid is None
    assert run.segments() == 2


def test_what_it_says_about_a_corrupt_database_is_in_the_daemons_log(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    (run.state_dir / FILE).write_bytes(b"not a database " * 1000)
    run.calls("a", "b")
    run.move()
    assert stored(run.state_dir) == ["a", "b"]
    assert len(databases_set_aside(run.state_dir)) == 1
    assert ["the state database is corrupt" in message for message in caplog.messages] == [True]


def test_it_cannot_be_started_and_the_journal_stays(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    run.calls("a")
    run.move()
    assert run.segments() == 2
    assert "this one moves them" in caplog.text


def test_two_processes_that_move_one_journal_lose_and_double_nothing(run: Run) -> None:
    """The process of a daemon that was killed is at work when the next daemon starts."""
    names = [f"call {number}" for number in range(200)]
    run.calls(*names)
    position = run.journal.position
    assert position is not None
    other = MoveProcess(run.state_dir)
    store = Store(run.state_dir / FILE)
    process = other._start()
    assert process.stdin is not None
    process.stdin.write("{} {}\n".format(*position).encode())
    while run.segments() > 1:
        store.move(run.state_dir / FOLDER, position)
    assert process.stdout is not None
    assert process.stdout.read(6) == b"moved "
    process.communicate()
    store.close()
    assert stored(run.state_dir) == names
    assert {row.outcome for row in rows(run.state_dir)} == {"ok"}


def move_programs() -> list[int]:
    """The children of this process that run it, as /proc tells."""
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in children if b"move_program" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_a_daemon_with_a_long_journal_uses_it_and_ends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with auditing(tmp_path, CurrentConfig(GatewayConfig()), every_s=0.005) as log:
        made = 0
        while len(list_segments(tmp_path / FOLDER)) <= LONG_SEGMENTS:
            made += 1
            log.begin(request(f"{made}"), "execute", tool_key="a:b", server_id="a").finish("ok")
        async with asyncio.timeout(60):
            while len(list_segments(tmp_path / FOLDER)) > 1:
                await asyncio.sleep(0.01)
        assert len(move_programs()) == 1
    assert move_programs() == []
    assert len(stored(tmp_path)) == made
    assert caplog.messages == []


async def test_a_daemon_with_a_short_journal_does_without_it(tmp_path: Path) -> None:
    async with auditing(tmp_path, CurrentConfig(GatewayConfig()), every_s=0.005) as log:
        log.begin(request("a"), "execute", tool_key="a:b", server_id="a").finish("ok")
        async with asyncio.timeout(60):
            while last_seq_in(tmp_path / FILE) < 1:
                await asyncio.sleep(0.01)
        assert move_programs() == []
