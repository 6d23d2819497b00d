"""Rows reach PostgreSQL exactly once: movers at once, one that is killed anywhere, a server that is away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from pointsman.config.model import Audit, CurrentConfig, GatewayConfig, Limits
from pointsman.core.errors import AuditUnavailableError
from pointsman.core.postgres import Postgres, PostgresAwayError, psycopg
from pointsman.router.audit.compaction.compaction import auditing
from pointsman.router.audit.compaction.move_process import MoveProcess
from pointsman.router.audit.compaction.move_program import DATABASE, REPLICA
from pointsman.router.audit.database import FILE
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.kept import AuditDatabaseError, move
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.postgres.writer import PostgresWriter
from pointsman.router.audit.query import read_rows
from pointsman.router.audit.segments import FOLDER, list_segments
from tests.postgres import Postgres as Server
from tests.router.audit.postgres.samples import ended_run, in_database, kept, move_all, opened
from tests.router.audit.samples import Clock, request


def test_three_movers_at_once_move_each_row_once(tmp_path: Path, database_url: str) -> None:
    runs = [ended_run(tmp_path, f"run{run}", segments=12, calls=40) for run in range(4)]
    expected = sorted((row for rows in runs for row in rows), key=str)
    script = (
        "import sys; from pathlib import Path; from tests.router.audit.postgres.samples import *\n"
        "with opened(sys.argv[1]) as it: print('ready', flush=True); input(); move_all(it, Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, database_url, str(tmp_path)]
    movers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    for mover in movers:
        assert mover.stdout is not None
        assert mover.stdout.readline() == b"ready\n"
    for mover in movers:
        assert mover.stdin is not None
        mover.stdin.write(b"\n")
        mover.stdin.flush()
    for mover in movers:
        mover.communicate(timeout=60)
        assert mover.returncode == 0
    with opened(database_url) as postgres:
        assert in_database(postgres) == expected
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_mover_that_is_killed_at_any_exchange_loses_and_doubles_nothing(tmp_path: Path, database_url: str) -> None:
    command = [sys.executable, "-m", "tests.router.audit.postgres.killed_mover", database_url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


def test_a_segment_that_is_there_is_only_deleted(tmp_path: Path, database_url: str) -> None:
    expected = ended_run(tmp_path, "run", segments=1)
    (segment,) = list_segments(tmp_path / FOLDER)
    copy = segment.path.read_bytes()
    with opened(database_url) as postgres:
        move_all(postgres, tmp_path)
        segment.path.write_bytes(copy)  # as if the mover had been killed before it deleted the file
        move_all(postgres, tmp_path)
        assert in_database(postgres) == expected
    assert not segment.path.exists()


def test_a_late_outcome_corrects_what_was_thought_to_be_interrupted(tmp_path: Path, database_url: str) -> None:
    journal = Journal(tmp_path / FOLDER)
    wall = Clock(time.time() - 100)
    log = AuditLog(journal, wall=wall)
    record = log.begin(request("slow"), "execute")
    wall.now += 100
    young = log.begin(request("young"), "execute")  # of a gateway that may not have given its first sign of life
    journal.rotate()
    living: tuple[str, ...] | None = None
    with opened(database_url) as postgres:
        own = PostgresWriter(postgres, "a")
        other = PostgresWriter(postgres, "b", lambda seconds: living, look_for_lost_every_s=0)
        move(own, tmp_path / FOLDER, journal.position)
        other.interrupt_lost()  # it cannot say who lives
        assert in_database(postgres) == [("slow", None), ("young", None)]
        living = ("a", "b")
        other.interrupt_lost()
        assert in_database(postgres) == [("slow", None), ("young", None)]
        living = ("b",)
        other.interrupt_lost()
        assert in_database(postgres) == [("slow", "interrupted"), ("young", None)]
        record.finish("ok", "a\0b", results=3, fallback=True, provider="bm25")
        young.finish("error", bytes=7)
        journal.rotate()
        move(own, tmp_path / FOLDER, journal.position)
        assert in_database(postgres) == [("slow", "ok"), ("young", "error")]
        slow = next(read_rows(kept(postgres, tmp_path)))
        assert (slow.code, slow.results, slow.fallback, slow.provider) == ("a\ufffdb", 3, True, "bm25")
    log.close()


def test_rows_that_another_gateway_moves_are_of_the_one_that_took_the_calls(tmp_path: Path, database_url: str) -> None:
    journal = Journal(tmp_path / FOLDER, replica="aaaaaaaa")
    log = AuditLog(journal)
    log.begin(request("open"), "execute")
    journal._end_run()  # as the kernel does for a process that ends
    with opened(database_url) as postgres:
        move(PostgresWriter(postgres, "bbbbbbbb"), tmp_path / FOLDER, None)
        (row,) = read_rows(kept(postgres, tmp_path))
        assert (row.replica, row.outcome) == ("aaaaaaaa", "interrupted")


def test_text_that_postgresql_cannot_store_does_not_hold_back_the_rest(tmp_path: Path, database_url: str) -> None:
    log = AuditLog(Journal(tmp_path / FOLDER))
    for client in ("a\0b", "tab\tback\\slash\nline", "\ud800", "\\N", ""):
        log.begin(request(client=client), "discovery", queries=[client]).finish("ok", "code\0")
    log.close()
    before = list(read_rows(tmp_path))
    with opened(database_url) as postgres:
        move_all(postgres, tmp_path)
        after = list(read_rows(kept(postgres, tmp_path)))
    assert [row.client.replace("\0", "\ufffd") for row in before] == [row.client for row in after]
    assert [row.queries for row in before] == [row.queries for row in after]


def _in_database_if_it_is_there(postgres: Postgres) -> list[tuple[str, str | None]]:
    try:
        return in_database(postgres)
    except (PostgresAwayError, psycopg.errors.UndefinedTable):
        return []


async def until_moved(url: str, expected: int) -> list[tuple[str, str | None]]:
    with opened(url) as postgres:
        async with asyncio.timeout(30):
            while True:
                found = await asyncio.to_thread(_in_database_if_it_is_there, postgres)
                if len(found) >= expected:
                    return found
                await asyncio.sleep(0.05)


async def test_calls_go_on_while_postgresql_is_away_and_no_row_is_lost_or_doubled(
    tmp_path: Path, own_postgres: Server
) -> None:
    url = own_postgres.new_database()
    postgres, stop, made = Postgres(url, program="test"), asyncio.Event(), count()
    held_back = False

    async def call(log: AuditLog) -> None:
        nonlocal held_back
        while not stop.is_set():
            with log.begin(request(f"r{next(made)}"), "execute", tool_key="a:b") as record:
                await asyncio.sleep(0.002)
                record.finish("ok")
            held_back = held_back or log.rows_held_back

    current = CurrentConfig(GatewayConfig())
    writer = PostgresWriter(postgres, "a")
    async with auditing(tmp_path, current, every_s=0.02, writer=writer) as log:
        callers = [asyncio.create_task(call(log)) for _ in range(4)]
        await until_moved(url, 100)
        await asyncio.to_thread(own_postgres.stop)
        async with asyncio.timeout(30):
            while not log.rows_held_back:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(30):
            while log.rows_held_back:
                await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*callers)
        total = next(made)
        found = await until_moved(url, total)
    postgres.close()
    assert held_back
    assert sorted(found) == sorted((f"r{number}", "ok") for number in range(total))


async def test_the_log_says_when_rows_are_moved_again_and_how_many(
    tmp_path: Path, own_postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_postgres.new_database()
    own_postgres.stop()
    postgres, current = Postgres(url, program="test"), CurrentConfig(GatewayConfig())
    async with auditing(tmp_path, current, every_s=0.02, writer=PostgresWriter(postgres, "a")) as log:
        async with asyncio.timeout(30):
            while not log.rows_held_back:
                await asyncio.sleep(0.01)
        for number in range(7):
            log.begin(request(f"r{number}"), "execute").finish("ok")
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(30):
            while log.rows_held_back:
                await asyncio.sleep(0.01)
        assert len(await until_moved(url, 7)) == 7
    postgres.close()
    said = [record.getMessage() for record in caplog.records if "audit rows" in record.getMessage()]
    assert len(said) == 2
    assert said[0].startswith("audit rows stay in the journal: ")
    assert said[1] == "the state database takes audit rows again; 7 moved from the journal"


async def _call_forever(log: AuditLog) -> None:
    async with asyncio.timeout(60):
        while True:
            log.begin(request(), "discovery", queries=["word " * 40] * 20).finish("ok")
            await asyncio.sleep(0)


async def test_calls_are_refused_when_the_journal_is_full_and_accepted_when_it_has_been_moved(
    tmp_path: Path, own_postgres: Server
) -> None:
    url = own_postgres.new_database()
    own_postgres.stop()
    postgres = Postgres(url, program="test")
    unlimited = Limits(audit_bytes_per_s=2**30)  # a fast machine fills the journal within a second
    current = CurrentConfig(GatewayConfig(audit=Audit(journal_bytes=1_048_576), limits=unlimited))
    async with auditing(tmp_path, current, every_s=0.02, writer=PostgresWriter(postgres, "a")) as log:
        with pytest.raises(AuditUnavailableError):
            await _call_forever(log)
        assert log.failing
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(60):
            while log.failing:
                await asyncio.sleep(0.01)
        log.begin(request("after"), "execute").finish("ok")
    postgres.close()


def test_a_process_of_its_own_moves_a_long_journal_into_the_same_database(tmp_path: Path, database_url: str) -> None:
    expected = ended_run(tmp_path, "run", segments=6)
    journal = Journal(tmp_path / FOLDER)
    journal.open()
    assert journal.position is not None
    process = MoveProcess(tmp_path, {DATABASE: database_url, REPLICA: "a"})
    try:
        process.move(journal.position)
        with opened(database_url) as postgres:
            assert in_database(postgres) == expected
            assert process.added == len(expected)
            assert {row.replica for row in read_rows(kept(postgres, tmp_path))} == {"a"}
    finally:
        process.close()
        journal.close()
    assert len(os.listdir(tmp_path / FOLDER)) == 2  # the run's file and its segment
    assert not (tmp_path / FILE).exists()


def test_a_newer_schema_is_refused_and_the_journal_keeps_the_rows(tmp_path: Path, database_url: str) -> None:
    ended_run(tmp_path, "run")
    with opened(database_url) as postgres:
        postgres.migrate("audit", ["SELECT 1"] * 9)
        with pytest.raises(AuditDatabaseError, match="newer Pointsman"):
            move_all(postgres, tmp_path)
    assert len(os.listdir(tmp_path / FOLDER)) == 5
