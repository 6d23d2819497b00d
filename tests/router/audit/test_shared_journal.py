"""Several replicas write to one journal folder: one growing series, each run alive as long as its replica."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.router.audit.journal import encode_line
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.query import Filter, follow
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.audit.segments import FOLDER, RunLock, Runs
from pointsman.router.audit.shared_journal import SharedJournal
from pointsman.router.audit.store import Store
from tests.router.audit.samples import request, rows

PROCESSES, CALLS = 4, 200
WRITER = """
import sys
from pathlib import Path
from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.shared_journal import SharedJournal
from tests.router.audit.samples import request

log = AuditLog(SharedJournal(Path(sys.argv[1])), CurrentConfig(GatewayConfig()))
log.open()
for number in range(int(sys.argv[2])):
    with log.begin(request(f"{sys.argv[3]}-{number}"), "execute", tool_key="a:b"):
        pass
    if number % 50 == 0:
        log.housekeep()
log.close()
"""


def shared_log(state_dir: Path) -> AuditLog:
    log = AuditLog(SharedJournal(state_dir / FOLDER), CurrentConfig(GatewayConfig()))
    log.open()
    return log


def test_processes_that_write_at_once_draw_one_series(tmp_path: Path) -> None:
    command = (sys.executable, "-c", WRITER, str(tmp_path / FOLDER), str(CALLS))
    writers = [subprocess.Popen((*command, str(number))) for number in range(PROCESSES)]
    store = Store(tmp_path / "state.db")
    while any(writer.poll() is None for writer in writers):
        store.move(tmp_path / FOLDER, None)  # a mover that works meanwhile loses nothing
    assert [writer.returncode for writer in writers] == [0] * PROCESSES
    found = rows(tmp_path)
    assert [row.seq for row in found] == list(range(1, PROCESSES * CALLS + 1))
    assert {row.outcome for row in found} == {"ok"}
    for number in range(PROCESSES):
        own = [row.request_id for row in found if row.request_id.startswith(f"{number}-")]
        assert own == [f"{number}-{call}" for call in range(CALLS)]
    store.close()


def test_the_series_goes_on_in_the_next_run_and_without_replicas(tmp_path: Path) -> None:
    for expected in ([1], [1, 2]):
        log = shared_log(tmp_path)
        log.begin(request(), "execute").__exit__(None, None, None)
        assert [row.seq for row in rows(tmp_path)] == expected
        assert log.last_seq == expected[-1]
        log.close()


def test_a_replica_knows_the_newest_row_of_all(tmp_path: Path) -> None:
    first, second = shared_log(tmp_path), shared_log(tmp_path)
    for log in (first, second, second):
        log.begin(request(), "execute").__exit__(None, None, None)
    assert (first.last_seq, second.last_seq) == (3, 3)
    first.close()
    second.close()


def test_a_run_that_lives_is_never_taken_for_one_that_has_ended(tmp_path: Path) -> None:
    """Another replica looks at any moment, also in the middle of a start."""
    stop, ended = threading.Event(), set[str]()

    def look() -> None:
        while not stop.is_set():
            runs = Runs(tmp_path)
            ended.update(run for run in runs if runs.has_ended(run))

    looking = threading.Thread(target=look)
    looking.start()
    locks = [RunLock(tmp_path, number) for number in range(1, 200)]
    stop.set()
    looking.join()
    assert ended == set()
    for lock in locks:
        lock.close()


def test_a_mover_leaves_the_runs_of_others_alone_where_another_has_the_lock(tmp_path: Path) -> None:
    dead = shared_log(tmp_path)
    dead.begin(request("of the dead"), "execute")
    dead._journal.close()  # as a killed process: the outcome is missing, the lock is free
    own = shared_log(tmp_path)
    own.begin(request("own"), "execute").__exit__(None, None, None)
    own.housekeep()
    store, position = Store(tmp_path / "state.db"), own._journal.position
    assert store.move(tmp_path / FOLDER, position, other_runs=False) == 1
    assert len(list((tmp_path / FOLDER).glob("*.run"))) == 2
    assert store.move(tmp_path / FOLDER, position) == 1
    assert [(row.request_id, row.outcome) for row in rows(tmp_path)] == [("of the dead", "interrupted"), ("own", "ok")]
    store.close()
    own.close()


def test_following_shows_a_row_that_is_written_after_a_later_one(tmp_path: Path) -> None:
    """Two replicas draw their seqs, and the second one writes first."""
    slow, fast = SharedJournal(tmp_path / FOLDER), shared_log(tmp_path)
    seq = slow.next_seq()
    late: list[bytes] = []

    def step() -> None:
        if late:
            slow.append(late.pop(), intents=1)
        else:
            fast.begin(request("fast"), "execute").__exit__(None, None, None)
            intent = Intent(seq, 1, "slow", "execute", "t", None, "c", "m")
            late.append(encode_line(intent) + encode_line(Outcome(seq, "ok")))

    shown = follow(tmp_path, Filter(), 10, pause=step)
    assert next(shown) == []
    assert [row.request_id for row in next(shown)] == ["fast"]
    assert [row.request_id for row in next(shown)] == ["slow"]
    slow.close()
    fast.close()
