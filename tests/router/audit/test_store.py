"""The state database takes the journal over, once each, and stays within its bounds."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from pointsman.config.model import Audit, CurrentConfig, GatewayConfig
from pointsman.router.audit.compaction.compaction import KEEP_ALL_S, TRIM_EVERY_S, auditing, last_seq_in
from pointsman.router.audit.database import FILE, SCHEMA_VERSION, NewerSchemaError, databases_set_aside, open_database
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.segments import FOLDER, list_segments
from pointsman.router.audit.store import Store
from tests.router.audit.samples import Clock, open_log, recording_arguments, request, rows


class Run:
    """A log with its store beside it, moved by hand."""

    def __init__(self, state_dir: Path, *, wall: Clock | None = None, busy_s: float = 0.05) -> None:
        self.folder = state_dir / FOLDER
        self.journal = Journal(self.folder)
        self.log = AuditLog(self.journal, wall=wall or Clock())
        self.store = Store(state_dir / FILE, busy_s=busy_s)

    def call(self, name: str) -> None:
        self.log.begin(request(name), "execute", tool_key="a:b", server_id="a").finish("ok")

    def move(self) -> int:
        self.log.housekeep()
        return self.store.move(self.folder, self.journal.position)

    def close(self) -> None:
        self.log.close()
        self.store.close()


def stored(state_dir: Path) -> list[tuple[int, str, str | None]]:
    connection = sqlite3.connect(state_dir / FILE)
    try:
        return connection.execute("SELECT seq, request_id, outcome FROM audit ORDER BY seq").fetchall()
    finally:
        connection.close()


def test_closed_segments_move_and_rows_read_the_same_before_and_after(tmp_path: Path) -> None:
    run = Run(tmp_path)
    log = AuditLog(run.journal, recording_arguments())
    log.begin(request("a", project=None), "discovery", queries=["x", "ü\n"]).finish(
        "ok", results=1, bytes=2, provider="bm25", fallback=False
    )
    log.begin(request("b"), "execute", tool_key="a:b", server_id="a", arguments={"n": [1, None]}).finish(
        "error", "server_unavailable"
    )
    log.begin(request("c"), "execute", arguments=0).finish("cancelled")
    log.record_refusal("denied", kind="execute", method="tools/call", token_id=None)
    before = rows(tmp_path)
    assert run.move() == 1
    assert len(stored(tmp_path)) == 4
    assert rows(tmp_path) == before
    assert [msgspec.to_builtins(row).get("arguments") for row in before] == [None, {"n": [1, None]}, 0, None]


def test_nothing_is_touched_while_nothing_happens(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.call("a")
    run.move()
    segments = list_segments(run.folder)
    assert run.move() == 0
    assert list_segments(run.folder) == segments


def test_an_outcome_finds_its_intent_in_the_database(tmp_path: Path) -> None:
    run = Run(tmp_path)
    long = run.log.begin(request("long"), "execute")
    run.move()
    assert stored(tmp_path) == [(1, "long", None)]
    assert [row.outcome for row in rows(tmp_path)] == [None]
    long.finish("ok", results=3)
    assert [(row.outcome, row.results) for row in rows(tmp_path)] == [("ok", 3)]  # intent there, outcome here
    run.move()
    assert stored(tmp_path) == [(1, "long", "ok")]


def test_a_segment_that_was_moved_but_not_deleted_is_not_doubled(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.call("a")
    (segment,) = list_segments(run.folder)
    lines = segment.path.read_bytes()
    run.move()
    segment.path.write_bytes(lines)  # as if killed between the commit and the deletion
    assert [row.request_id for row in rows(tmp_path)] == ["a"]
    run.move()
    assert stored(tmp_path) == [(1, "a", "ok")]


def test_the_segment_in_use_and_those_of_another_live_run_are_left_alone(tmp_path: Path) -> None:
    other, run = Run(tmp_path), Run(tmp_path)
    other.call("other")
    other.log.housekeep()
    run.call("mine")
    assert run.store.move(run.folder, run.journal.position) == 0
    assert run.move() == 1
    assert stored(tmp_path) == [(1, "mine", "ok")] or stored(tmp_path) == [(2, "mine", "ok")]


@pytest.mark.parametrize("taken_over", [False, True])
def test_the_mover_of_a_killed_gateway_leaves_the_journal_to_the_next(tmp_path: Path, taken_over: bool) -> None:
    """It may get to work late, when the next gateway has run and ended; its last segment says where seq goes on."""
    killed = Journal(tmp_path / FOLDER)
    AuditLog(killed).begin(request("a"), "execute").finish("ok")
    killed.rotate()
    position = killed.position
    killed._end_run()  # as the kernel does for a process that is killed
    following = Run(tmp_path)
    following.call("b")
    if taken_over:
        following.store.move(following.folder, following.journal.position)
        assert stored(tmp_path) == [(1, "a", "ok")]
    following.close()
    before, found = list_segments(tmp_path / FOLDER), rows(tmp_path)
    store = Store(tmp_path / FILE)
    store.move(tmp_path / FOLDER, position)
    store.close()
    assert list_segments(tmp_path / FOLDER) == before
    assert rows(tmp_path) == found
    assert len(found) == 2


def test_an_intent_of_a_run_that_is_over_was_interrupted(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.log.begin(request("moved"), "execute")
    first.move()
    first.log.begin(request("in the journal"), "execute")
    assert [row.outcome for row in rows(tmp_path)] == [None, None]
    first.close()
    assert [row.outcome for row in rows(tmp_path)] == ["interrupted", "interrupted"]
    second = Run(tmp_path)
    second.call("next")
    second.move()
    assert [outcome for _, _, outcome in stored(tmp_path)] == ["interrupted", "interrupted", "ok"]
    assert [row.seq for row in rows(tmp_path)] == [1, 2, 3]
    assert len(list(second.folder.glob("*.run"))) == 1


async def test_a_new_run_takes_over_what_earlier_ones_left(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        log = open_log(tmp_path)
        log.begin(request(name), "execute").finish("ok")
        log.begin(request(f"{name} open"), "execute")
        log.close()
    before = rows(tmp_path)
    async with auditing(tmp_path, CurrentConfig(GatewayConfig())) as log:
        log.begin(request("new"), "execute").finish("ok")
    assert len(stored(tmp_path)) >= 6
    after = rows(tmp_path)
    assert after[:6] == before
    assert [(row.seq, row.request_id, row.outcome) for row in after[6:]] == [(7, "new", "ok")]


def test_seq_goes_on_though_the_journal_was_deleted(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.call("a")
    run.move()
    assert last_seq_in(tmp_path / FILE) == 1
    assert last_seq_in(tmp_path / "absent.db") == 0


def test_a_locked_database_costs_the_calls_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.call("a")
    run.move()
    holder = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    run.call("b")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        run.move()
    run.call("c")
    assert [row.request_id for row in rows(tmp_path)] == ["a", "b", "c"]
    holder.execute("ROLLBACK")
    holder.close()
    run.move()
    assert [name for _, name, _ in stored(tmp_path)] == ["a", "b", "c"]


def test_a_broken_database_is_set_aside_and_a_new_one_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database " * 500)
    run = Run(tmp_path)
    run.call("a")
    run.move()
    assert stored(tmp_path) == [(1, "a", "ok")]
    (aside,) = tmp_path.glob(f"{FILE}.broken-*")
    assert aside.read_bytes().startswith(b"this is no database")
    assert aside.name in caplog.text


def test_a_database_that_breaks_while_in_use_is_set_aside_too(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.call("a")
    run.move()
    run.call("b")
    run.move()
    database = tmp_path / FILE
    other = sqlite3.connect(database)
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    database.write_bytes(database.read_bytes()[:100] + b"\xaa" * (database.stat().st_size - 100))
    run.call("c")
    with pytest.raises(sqlite3.DatabaseError):  # finds it out
        run.move()
    run.move()
    assert stored(tmp_path) == [(3, "c", "ok")]
    assert len([path for path in tmp_path.glob(f"{FILE}.broken-*") if path.name[-1].isdigit()]) == 1


def test_a_database_of_a_newer_pointsman_is_left_as_it_is(tmp_path: Path) -> None:
    newer = sqlite3.connect(tmp_path / FILE)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.commit()
    newer.close()
    run = Run(tmp_path)
    run.call("a")
    with pytest.raises(NewerSchemaError, match="newer Pointsman"):
        run.move()
    assert len(list_segments(run.folder)) == 2
    assert not list(tmp_path.glob(f"{FILE}.broken-*"))


def test_the_database_is_private_and_in_wal_mode(tmp_path: Path) -> None:
    (tmp_path / FILE).touch(mode=0o644)
    run = Run(tmp_path)
    run.call("a")
    run.move()
    files = list(tmp_path.glob(f"{FILE}*"))
    assert {path.name for path in files} == {FILE, f"{FILE}-wal", f"{FILE}-shm"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_rows_that_are_too_old_go(tmp_path: Path) -> None:
    wall = Clock(1000.0)
    run = Run(tmp_path, wall=wall)
    for name in ("old", "older", "new"):
        run.call(name)
        wall.now += 100
    run.move()
    assert run.store.trim(older_than_ms=1_150_000, max_bytes=10**9) == 2
    assert [name for _, name, _ in stored(tmp_path)] == ["new"]


def test_the_oldest_rows_go_when_the_database_grows_too_large(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(3000):
        run.call(f"{number:0100d}")
    run.move()
    assert run.store.trim(older_than_ms=0, max_bytes=10**9) == 0
    limit = 300_000
    deleted = run.store.trim(older_than_ms=0, max_bytes=limit)
    left = stored(tmp_path)
    assert 0 < deleted == 3000 - len(left) < 3000
    assert [seq for seq, _, _ in left] == list(range(deleted + 1, 3001))
    assert (tmp_path / FILE).stat().st_size <= limit
    run.call("next")
    run.move()
    assert rows(tmp_path)[-1].seq == 3001


DAY_S = 86_400.0


class Life:
    """Runs of an audit on one state folder, whose clocks the test moves."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.wall = Clock()
        self.monotonic = Clock(0.0)

    def record(self, *names: str) -> None:
        """A run that ends before its rows are moved."""
        log = open_log(self.state_dir, wall=self.wall)
        for name in names:
            log.begin(request(name), "execute").finish("ok")
        log.close()

    @asynccontextmanager
    async def running(self, max_days: int = 2, max_bytes: int = 10**9) -> AsyncGenerator[AuditLog]:
        current = CurrentConfig(GatewayConfig(audit=Audit(max_days=max_days, max_bytes=max_bytes)))
        async with auditing(self.state_dir, current, wall=self.wall, monotonic=self.monotonic, every_s=0.005) as log:
            yield log

    async def trimmed(self, log: AuditLog, after_s: float) -> list[str]:
        """What is left when a trim that far in the future is over. The marks show that it is."""
        self.monotonic.now += after_s
        self.wall.now += after_s
        for mark in ("first", "second"):  # two moves: the second cannot begin before the trim of the first is over
            log.begin(request(f"mark-{mark}"), "execute").finish("ok")
            async with asyncio.timeout(30):
                while not (self.state_dir / FILE).exists() or f"mark-{mark}" not in self.names()[-1:]:
                    await asyncio.sleep(0.005)
        return [name for name in self.names() if not name.startswith("mark")]

    def names(self) -> list[str]:
        try:
            return [name for _, name, _ in stored(self.state_dir)]
        except sqlite3.Error:
            return []


async def test_the_bounds_of_the_configuration_are_kept(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.record("old")
    life.wall.now += 3 * DAY_S
    life.record("new")
    async with life.running() as log:
        assert await life.trimmed(log, KEEP_ALL_S) == ["new"]


async def test_nothing_is_deleted_in_the_first_hour(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.record("old")
    life.wall.now += 3 * DAY_S
    life.record("new")
    async with life.running(max_bytes=100_000) as log:
        assert await life.trimmed(log, KEEP_ALL_S - 1) == ["old", "new"]
        assert await life.trimmed(log, TRIM_EVERY_S) == ["new"]


async def test_a_database_that_would_fill_the_disk_is_cut_in_the_first_hour_too(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.record(*(f"{number:0100d}" for number in range(3000)))
    async with life.running(max_bytes=100_000) as log:
        left = await life.trimmed(log, TRIM_EVERY_S)
    assert 0 < len(left) < 3000
    assert left[-1] == f"{2999:0100d}"


async def test_a_clock_that_is_ahead_deletes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(tmp_path)
    life.record("old")
    life.wall.now += 1.5 * DAY_S
    life.record("new")
    right = life.wall.now
    life.wall.now += 100 * DAY_S
    async with life.running() as log:
        assert await life.trimmed(log, KEEP_ALL_S) == ["old", "new"]
        assert "100 days ahead of the newest audit row" in caplog.text
        assert await life.trimmed(log, 0.4 * DAY_S) == ["old", "new"]
        assert await life.trimmed(log, 0.2 * DAY_S) == ["new"]  # older than two days, by the rows and the time since
    life.wall.now = right + DAY_S
    async with life.running() as log:  # the rows of the run before are ahead now
        assert await life.trimmed(log, KEEP_ALL_S) == ["new"]


async def test_a_clock_that_jumps_while_the_gateway_runs_is_believed_after_a_day(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.record("old")
    async with life.running() as log:
        assert await life.trimmed(log, KEEP_ALL_S) == ["old"]
        life.wall.now += 100 * DAY_S
        assert await life.trimmed(log, TRIM_EVERY_S) == ["old"]
        assert await life.trimmed(log, DAY_S) == []


def test_a_database_without_its_table_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for statement in ("DROP TABLE audit", "ALTER TABLE audit DROP COLUMN code"):
        run = Run(tmp_path)
        run.call("before")
        run.move()
        other = sqlite3.connect(tmp_path / FILE)
        other.execute(statement)
        other.close()
        run.close()
        run = Run(tmp_path)
        run.call("after")
        run.move()
        assert [name for _, name, _ in stored(tmp_path)] == ["after"]
        run.close()
        (tmp_path / FILE).unlink()
    assert "table `audit` is missing" in caplog.text
    assert "table `audit` lacks columns" in caplog.text
    assert len(databases_set_aside(tmp_path)) == 2


@pytest.mark.parametrize(("version", "added"), [(1, ""), (2, ", repeats INTEGER")])
def test_a_database_of_an_earlier_version_is_read_and_gets_the_new_columns(
    version: int, added: str, tmp_path: Path
) -> None:
    old = sqlite3.connect(tmp_path / FILE)
    columns = f"""
        seq INTEGER NOT NULL, run TEXT NOT NULL, time_ms INTEGER NOT NULL, request_id TEXT NOT NULL,
        kind TEXT NOT NULL, token TEXT, project TEXT, client TEXT NOT NULL, method TEXT NOT NULL, queries TEXT,
        tool_key TEXT, server_id TEXT, arguments TEXT, outcome TEXT, code TEXT, ms REAL, results INTEGER,
        bytes INTEGER, provider TEXT, fallback INTEGER{added}
    """
    old.execute(f"CREATE TABLE audit ({columns}, PRIMARY KEY (seq, run))")
    old.execute(
        "INSERT INTO audit (seq, run, time_ms, request_id, kind, client, method, outcome)"
        " VALUES (7, 'r', 0, 'q', 'execute', '', '', 'ok')"
    )
    old.execute(f"PRAGMA user_version = {version}")
    old.commit()
    old.close()
    assert [row.seq for row in rows(tmp_path)] == [7]
    open_database(tmp_path / FILE).close()
    new = open_database(tmp_path / FILE)
    new.execute("UPDATE audit SET repeats = 3, read_as = 'bare_name'")
    new.close()
    assert [(row.seq, row.repeats, row.read_as) for row in rows(tmp_path)] == [(7, 3, "bare_name")]


def test_a_database_of_the_first_version_without_its_table_is_set_aside(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / FILE)
    old.execute("CREATE TABLE other (x)")
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    open_database(tmp_path / FILE).close()
    assert len(databases_set_aside(tmp_path)) == 1


def test_repeated_refusals_become_one_row_that_says_how_many(tmp_path: Path) -> None:
    now = 100.0
    journal = Journal(tmp_path / FOLDER)
    log = AuditLog(journal, monotonic=lambda: now)

    def refuse(token_id: str, times: int) -> None:
        for _ in range(times):
            log.record_refusal("rate_limited", kind="execute", method="tools/call", token_id=token_id, tool_key="s:t")

    refuse("anna", 5)
    refuse("ben", 1)
    log.housekeep()
    now += 11
    log.housekeep()
    refuse("anna", 2)
    log.close()
    store = Store(tmp_path / FILE)
    store.move(tmp_path / FOLDER, None)
    store.close()
    found = [(row.token, row.code, row.tool_key, row.repeats) for row in rows(tmp_path)]
    once = msgspec.UNSET
    assert found == [
        ("anna", "rate_limited", "s:t", once),
        ("ben", "rate_limited", "s:t", once),
        ("anna", "rate_limited", "s:t", 4),
        ("anna", "rate_limited", "s:t", once),
        ("anna", "rate_limited", "s:t", once),
    ]
