"""Rows of several gateways are read, paged and followed as those of one are in SQLite."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from pointsman.core.postgres import Postgres
from pointsman.router.audit.database import FILE
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.kept import move
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.postgres.reader import PostgresRows
from pointsman.router.audit.postgres.writer import PostgresWriter
from pointsman.router.audit.query import Filter, Source, follow, last_uses, read_page, read_rounds, read_rows
from pointsman.router.audit.rows import Row
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store
from tests.router.audit.postgres.samples import kept, opened
from tests.router.audit.samples import Clock, request

BEGAN = 1_800_000_000.0
FILTERS = (
    Filter(),
    Filter(token="phone"),
    Filter(token=""),
    Filter(project=""),
    Filter(project="research", kind="execute", outcome="ok"),
    Filter(tool_key="a:x"),
    Filter(kind="discovery"),
    Filter(outcome="denied"),
    Filter(outcome=""),
    Filter(outcome="interrupted"),
    Filter(code="timeout"),
    Filter(since_ms=int((BEGAN + 90_000) * 1000)),
    Filter(until_ms=int((BEGAN + 90_000) * 1000)),
    Filter(text="FIND"),
    Filter(text='50%_"x'),
    Filter(text="Ä"),
    Filter(after_seq=6, also=frozenset({2})),
    Filter(before_seq=9),
)


@pytest.fixture
def postgres(database_url: str) -> Iterator[Postgres]:
    with opened(database_url) as postgres:
        yield postgres


@pytest.fixture
def engines(tmp_path: Path, postgres: Postgres) -> Iterator[tuple[Path, PostgresRows]]:
    """The same rows in both engines: of a killed run, moved, and of a running one, partly in the journal."""
    wall, folders = Clock(BEGAN), (tmp_path / "sqlite", tmp_path / "postgres")
    killed = Journal(folders[0] / FOLDER)
    _write(AuditLog(killed, wall=wall), wall)
    killed._end_run()
    running = Journal(folders[0] / FOLDER)
    log = AuditLog(running, wall=wall)
    _write(log, wall)
    running.rotate()
    assert running.position is not None
    shutil.copytree(folders[0], folders[1])
    with (folders[1] / FOLDER / f"{running.position[0]}.run").open() as copy:
        fcntl.flock(copy, fcntl.LOCK_EX)  # it runs there, too
        store = Store(folders[0] / FILE)
        move(store, folders[0] / FOLDER, running.position)
        store.close()
        move(PostgresWriter(postgres, "one"), folders[1] / FOLDER, running.position)
        yield folders[0], kept(postgres, folders[1])
    log.close()


def _write(log: AuditLog, wall: Clock) -> None:
    for day in range(3):
        log.begin(request(f"{day}"), "execute", tool_key="a:x", server_id="a").finish("ok", bytes=3)
        log.begin(request(f"{day}", token="phone"), "execute", tool_key="b:y").finish("timeout", "timeout")
        log.begin(request("multi", project=None), "discovery", queries=['find 50%_"x', "Ä"]).finish("ok", results=2)
        log.record_refusal("unauthorized", kind="execute", method="tools/call", token_id=None, request_id="stranger")
        log.begin(request(f"open {day}"), "execute", tool_key="a:x", arguments={"a": 1})
        wall.now += 86_400


def plain(rows: Iterator[Row] | list[Row]) -> list[Row]:
    return [msgspec.structs.replace(row, replica=msgspec.UNSET) for row in rows]


def test_both_engines_answer_alike(engines: tuple[Path, PostgresRows]) -> None:
    sqlite, shared = engines
    assert len(list(read_rows(sqlite))) == 30
    for wanted in FILTERS:
        assert plain(read_rows(shared, wanted)) == list(read_rows(sqlite, wanted)), wanted
        assert plain(read_rows(shared, wanted, newest=3)) == list(read_rows(sqlite, wanted, newest=3)), wanted
        ours, theirs = (read_page(source, wanted, newest=0, count=4) for source in (shared, sqlite))
        assert plain(ours.rows) == theirs.rows, wanted
        assert ours.older == theirs.older, wanted
    assert plain(read_rounds(shared, 3)) == read_rounds(sqlite, 3)
    assert len(read_rounds(sqlite, 3)) == 6
    assert read_rounds(shared, 10**9) == []
    assert last_uses(shared, ["laptop", "phone", "none"]) == last_uses(sqlite, ["laptop", "phone", "none"])
    assert {row.replica for row in read_rows(shared)} == {"one"}


def test_all_pages_together_are_all_rows(engines: tuple[Path, PostgresRows]) -> None:
    for source in engines:
        for wanted in (Filter(), Filter(outcome="timeout")):
            found, before = [], None
            while True:
                page = read_page(source, wanted, newest=0, before=before, count=2, scanned=7)
                found += [row.seq for row in page.rows]
                before = page.older
                if before is None:
                    break
            assert found == [row.seq for row in read_rows(source, wanted)][::-1]


def test_seqs_of_gateways_are_in_the_order_of_time(tmp_path: Path, postgres: Postgres) -> None:
    wall = Clock(BEGAN)
    journals = [
        Journal(tmp_path / name / FOLDER, lowest_seq=lambda: int(wall.now * 1_000_000)) for name in ("a", "b", "c")
    ]
    logs = [AuditLog(journal, wall=wall) for journal in journals]
    for number in range(30):
        logs[number % 3].begin(request(str(number)), "execute").finish("ok")
        wall.now += 0.001 if number % 10 else -0.0001  # a clock is set back: the seqs of one gateway still grow
    for name, log in zip("abc", logs, strict=True):
        log.close()
        move(PostgresWriter(postgres, name), tmp_path / name / FOLDER, None)
    rows = list(read_rows(kept(postgres, tmp_path)))
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    assert {(row.request_id, row.replica) for row in rows} == {(str(n), "abc"[n % 3]) for n in range(30)}
    assert all(len(str(row.seq)) == 16 for row in rows)  # a link of the page, and exact in JavaScript


def test_equal_seqs_of_gateways_cost_no_row_and_repeat_none(tmp_path: Path, postgres: Postgres) -> None:
    """Three gateways whose clocks show the same microsecond."""
    expected = set()
    for name in "abc":
        log = AuditLog(Journal(tmp_path / name / FOLDER, lowest_seq=lambda: 10**15))
        for number in range(5):
            log.begin(request(f"{name}{number}"), "execute").finish("ok")
            expected.add((10**15 + number, f"{name}{number}"))
        log.close()
        if name != "c":  # the last one's are in the journal of the gateway that is asked
            move(PostgresWriter(postgres, name), tmp_path / name / FOLDER, None)
    source = kept(postgres, tmp_path / "c")
    assert {(row.seq, row.request_id) for row in read_rows(source)} == expected
    for size, scanned in ((1, 50), (2, 50), (4, 50), (2, 4)):
        found, before = [], None
        while True:
            page = read_page(source, Filter(), newest=0, before=before, count=size, scanned=scanned)
            found += [(row.seq, row.request_id) for row in page.rows]
            if (before := page.older) is None:
                break
        assert sorted(found) == sorted(expected)  # each once
    for seq, request_id in expected:
        (row,) = read_rounds(source, seq, request_id)
        assert (row.seq, row.request_id) == (seq, request_id)


def test_what_was_under_way_or_in_the_journal_at_the_begin_is_followed_once(tmp_path: Path, postgres: Postgres) -> None:
    """`tail -f` begins while a call of another gateway runs, and before this one has moved its rows."""
    other, own = (Journal(tmp_path / name / FOLDER, lowest_seq=lambda: 10**15) for name in ("other", "own"))
    others_log, own_log = AuditLog(other), AuditLog(own)
    runs = others_log.begin(request("runs"), "execute")
    other.rotate()
    move(PostgresWriter(postgres, "other"), tmp_path / "other" / FOLDER, other.position)
    own_log.begin(request("in the journal"), "execute").finish("ok")  # with the same seq
    source = kept(postgres, tmp_path / "own")
    following = follow(source, Filter(), 5, pause=lambda: None)
    assert [row.request_id for row in next(following)] == ["in the journal"]
    before = source.look()
    own.rotate()
    move(PostgresWriter(postgres, "own"), tmp_path / "own" / FOLDER, own.position)
    assert next(following) == []  # it was shown
    moved = source.look()
    runs.finish("ok")
    other.rotate()
    move(PostgresWriter(postgres, "other"), tmp_path / "other" / FOLDER, other.position)
    assert [row.request_id for row in next(following)] == ["runs"]
    assert next(following) == []
    assert len({before, moved, source.look()}) == 3  # the page notices each
    own_log.close()
    others_log.close()


def test_a_follower_misses_no_row_of_four_gateways(tmp_path: Path, postgres: Postgres) -> None:
    names, rounds, done = "abcd", 30, threading.Event()

    def write(name: str) -> None:
        folder = tmp_path / name / FOLDER
        journal = Journal(folder, lowest_seq=lambda: next(stamps))
        log = AuditLog(journal)
        for number in range(rounds):
            begun = [log.begin(request(f"{name}{number}-{n}"), "execute") for n in range(4)]
            journal.rotate()
            move(PostgresWriter(postgres, name), folder, journal.position)  # first without outcomes
            for record in begun:
                record.finish("ok")
            journal.rotate()
            move(PostgresWriter(postgres, name), folder, journal.position)
        log.close()

    stamps = count(10**15)
    writers = [threading.Thread(target=write, args=(name,)) for name in names]
    following = follow(_source(postgres, tmp_path), Filter(), 0, pause=lambda: None)
    assert next(following) == []
    for writer in writers:
        writer.start()
    found: list[str] = []
    looks_after = 0
    for rows in following:
        found += [row.request_id for row in rows]
        looks_after += not any(writer.is_alive() for writer in writers)
        if looks_after > 1:
            break
    done.set()
    expected = sorted(f"{name}{number}-{n}" for name in names for number in range(rounds) for n in range(4))
    assert sorted(found) == expected


def _source(postgres: Postgres, folder: Path) -> Source:
    return kept(postgres, folder)


def test_a_filter_holds_for_what_is_followed(tmp_path: Path, postgres: Postgres) -> None:
    following = follow(kept(postgres, tmp_path), Filter(token="phone"), 5, pause=lambda: None)
    assert next(following) == []
    log = AuditLog(Journal(tmp_path / FOLDER))
    for token in ("laptop", "phone"):
        log.begin(request(token, token=token), "execute").finish("ok")
    log.close()
    move(PostgresWriter(postgres, "a"), tmp_path / FOLDER, None)
    assert [row.request_id for row in next(following)] == ["phone"]
