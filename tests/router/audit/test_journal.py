"""The journal takes all of a record or nothing, and mends itself."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.core.errors import AuditUnavailableError
from pointsman.router.audit.database import FILE
from pointsman.router.audit.journal import Journal, encode_line
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.rows import Outcome
from pointsman.router.audit.segments import FOLDER, Segment, list_segments, read_entries
from pointsman.router.audit.store import Store
from tests.router.audit.samples import Observed, open_log, request, rows

ROOT = Path(__file__).parents[3]


class Disk:
    """Writes as much of each record as there is room for; None is all of it."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.can_truncate = True
        self.writes: list[bytes] = []

    def write(self, fd: int, data: bytes) -> int:
        self.writes.append(data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data if self.room is None else data[: self.room])

    def truncate(self, fd: int, length: int) -> None:
        if not self.can_truncate:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, length)


def log_on(disk: Disk, state_dir: Path, observers: list[Observed] | None = None) -> AuditLog:
    journal = Journal(state_dir / FOLDER, write=disk.write, truncate=disk.truncate)
    return AuditLog(journal, observers=observers or [])


def call(log: AuditLog, name: str = "r") -> None:
    log.begin(request(name), "execute", tool_key="a:b", server_id="a").finish("ok")


def test_intent_and_outcome_are_one_write_each_and_a_refusal_one_in_all(tmp_path: Path) -> None:
    disk = Disk()
    log = log_on(disk, tmp_path)
    record = log.begin(request(), "execute")
    assert len(disk.writes) == 1
    record.finish("ok")
    assert len(disk.writes) == 2
    log.record_refusal("denied", kind="execute", method="tools/call", token_id="laptop")
    assert len(disk.writes) == 3


@pytest.mark.parametrize("room", [0, 1, 20, 60])
@pytest.mark.parametrize("can_truncate", [True, False])
def test_a_record_that_does_not_fit_is_taken_back_and_the_call_refused(
    tmp_path: Path, room: int, can_truncate: bool
) -> None:
    disk, seen = Disk(), Observed()
    log = log_on(disk, tmp_path, [seen])
    call(log, "first")
    disk.room, disk.can_truncate = room, can_truncate
    for _ in range(3):
        with pytest.raises(AuditUnavailableError):
            log.begin(request("lost"), "execute")
    assert log.failing
    assert seen.failures == 3
    disk.room, disk.can_truncate = None, True
    call(log, "second")
    assert not log.failing
    assert [(row.seq, row.request_id, row.outcome) for row in rows(tmp_path)] == [
        (1, "first", "ok"),
        (2, "second", "ok"),
    ]


def test_an_outcome_that_cannot_be_written_is_written_before_the_next_intent(tmp_path: Path) -> None:
    disk, seen = Disk(), Observed()
    log = log_on(disk, tmp_path, [seen])
    record = log.begin(request("first"), "execute")
    disk.room = 10
    record.finish("ok", results=7)
    assert seen.calls[0][1].results == 7  # counted at once
    disk.room = None
    disk.writes.clear()
    log.begin(request("second"), "execute")
    assert [b'"outcome":"ok"' in line for line in disk.writes] == [True, False]
    assert [(row.request_id, row.outcome, row.results) for row in rows(tmp_path)] == [
        ("first", "ok", 7),
        ("second", None, None),
    ]


def test_an_outcome_that_cannot_be_written_is_written_by_housekeeping_too(tmp_path: Path) -> None:
    disk = Disk()
    log = log_on(disk, tmp_path)
    record = log.begin(request(), "execute")
    disk.room = 0
    record.finish("ok")
    log.housekeep()
    assert [row.outcome for row in rows(tmp_path)] == [None]
    disk.room = None
    log.housekeep()
    assert [row.outcome for row in rows(tmp_path)] == ["ok"]


def test_the_operator_reads_once_why_calls_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    log = log_on(disk, tmp_path)
    disk.room = 0
    for _ in range(5):
        with pytest.raises(AuditUnavailableError):
            log.begin(request(), "execute")
    disk.room = None
    call(log)
    call(log)
    first, second = (record.getMessage() for record in caplog.records)
    assert "No space left on device" in first
    assert "again" in second


def test_a_full_device_refuses_the_call(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    log = AuditLog(Journal(tmp_path / FOLDER, write=lambda _, data: os.write(full, data)))
    try:
        with pytest.raises(AuditUnavailableError):
            log.begin(request(), "execute")
    finally:
        os.close(full)
    assert rows(tmp_path) == []


def test_out_of_room_calls_are_refused_and_with_room_again_they_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.router.audit.full_disk", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    begun, failing, healed = done.stdout.splitlines()
    count = int(begun.removeprefix("begun "))
    assert count > 10
    assert failing == "failing True told True"
    assert healed == "failing False"
    expected = [f"before-{number}" for number in range(count)] + ["after"]
    assert [(row.request_id, row.outcome) for row in rows(tmp_path)] == [(name, "ok") for name in expected]


def test_a_folder_that_cannot_be_made_refuses_calls_until_it_can(tmp_path: Path) -> None:
    in_the_way = tmp_path / FOLDER
    in_the_way.write_text("a file")
    log = open_log(tmp_path)
    log.open()
    assert log.failing
    with pytest.raises(AuditUnavailableError):
        log.begin(request(), "execute")
    log.record_refusal("denied", kind="execute", method="tools/call", token_id="laptop")  # nothing to protect: no error
    in_the_way.unlink()
    call(log)
    assert [row.outcome for row in rows(tmp_path)] == ["ok"]


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    call(log, "whole")
    log.close()
    (segment,) = list_segments(tmp_path / FOLDER)
    whole = segment.path.read_bytes()
    with segment.path.open("ab") as file:
        file.write(whole[:50])
    assert [row.request_id for row in rows(tmp_path)] == ["whole"]
    log = open_log(tmp_path)
    call(log, "next")
    assert [(row.seq, row.request_id) for row in rows(tmp_path)] == [(1, "whole"), (2, "next")]


@pytest.mark.parametrize("junk", [b"\n", b"{}\n", b"not json\n", b"\xff\xfe\n", b'{"t":"intent","seq":"x"}\n', b"[]\n"])
def test_a_damaged_line_costs_only_itself(tmp_path: Path, junk: bytes) -> None:
    log = open_log(tmp_path)
    call(log, "one")
    (segment,) = list_segments(tmp_path / FOLDER)
    with segment.path.open("ab") as file:
        file.write(junk)
    call(log, "two")
    assert [row.request_id for row in rows(tmp_path)] == ["one", "two"]


def test_a_full_segment_is_followed_by_the_next_without_losing_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FOLDER, segment_bytes=1000)
    log = AuditLog(journal)
    for _ in range(30):
        call(log)
    segments = list_segments(tmp_path / FOLDER)
    assert len(segments) > 3
    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert [row.seq for row in rows(tmp_path)] == list(range(1, 31))
    log.close()
    for segment in segments[:-1]:
        segment.path.unlink()  # as compaction does
    call(open_log(tmp_path))
    assert rows(tmp_path)[-1].seq == 31


def test_an_empty_last_segment_still_says_where_seq_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    call(log)
    log.housekeep()
    log.close()
    first, last = list_segments(tmp_path / FOLDER)
    first.path.unlink()
    assert list(read_entries(last.path)) == []
    call(open_log(tmp_path))
    assert [row.seq for row in rows(tmp_path)] == [2]


def test_a_journal_that_somebody_deleted_is_begun_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    call(log)
    shutil.rmtree(tmp_path / FOLDER)
    log.housekeep()
    call(log)
    assert [row.seq for row in rows(tmp_path)] == [2]


def test_a_finish_after_the_end_harms_nobody(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    record = log.begin(request(), "execute")
    log.close()
    record.finish("cancelled")
    assert [row.outcome for row in rows(tmp_path)] == ["interrupted"]


LINE = '{{"t":"intent","seq":{seq},"time_ms":{time},"request_id":"r","kind":"execute","arguments":{arguments}}}\n'


@pytest.mark.parametrize(
    "wrong",
    [
        {"arguments": "[" * 100_000 + "]" * 100_000},
        {"arguments": "9" * 5000},
        {"seq": 10**30},
        {"seq": -1},
        {"time": 10**18},
        {"time": 10**30},
    ],
    ids=["deep", "digits", "seq", "negative", "year", "time"],
)
def test_a_line_that_cannot_be_held_costs_no_other_line(tmp_path: Path, wrong: dict[str, object]) -> None:
    """One such line used to end the task that moves rows into the database, and the listing of rows."""
    right = {"seq": 1, "time": 1_790_000_000_000, "arguments": "{}"}
    folder = tmp_path / FOLDER
    folder.mkdir()
    segment = Segment.named(folder, "0000000000000001-5f3a9c21", 0, 1)
    lines = (right, {**right, "seq": 2, **wrong}, {**right, "seq": 3})
    segment.path.write_text("".join(LINE.format(**line) for line in lines))
    assert [row.seq for row in rows(tmp_path)] == [1, 3]
    store = Store(tmp_path / FILE)
    store.move(folder, None)
    store.close()
    assert [row.seq for row in rows(tmp_path)] == [1, 3]


def test_a_line_that_is_read_while_it_is_written_is_not_lost(tmp_path: Path) -> None:
    first, second, third = (encode_line(Outcome(seq, "ok")) for seq in (1, 2, 3))
    path = tmp_path / "segment"
    path.write_bytes(first + second[:5])
    entries = read_entries(path)
    read = [next(entries).seq]
    with path.open("ab") as file:
        file.write(second[5:] + third)
    assert [*read, *(entry.seq for entry in entries)] == [1, 2, 3]
