"""Journal and database read as one, whatever has moved where."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.router.audit.database import FILE, open_database
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.audit.query import Filter, LastUse, follow, last_uses, read_rows
from pointsman.router.audit.rows import ENDINGS
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store
from tests.router.audit.samples import Clock, open_log, request, rows

TEXT = st.text(max_size=20)
ENDING = st.sampled_from([ending for ending in ENDINGS if ending != "interrupted"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), TEXT, st.none() | st.lists(TEXT, max_size=3)),
        st.tuples(st.just("finish"), st.integers(0, 5), ENDING),
        st.tuples(st.just("refuse"), TEXT, st.just(None)),
        st.tuples(st.sampled_from(["rotate", "move", "restart"]), st.none(), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_every_row_is_read_once_and_in_order_wherever_it_lies(steps: list[tuple[str, object, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = _Model(Path(folder))
        for step in steps:
            model.do(*step)
            assert model.read() == model.expected
        model.do("restart", None, None)
        model.do("move", None, None)
        assert model.read() == model.expected
        model.close()


class _Model:
    """Does each step for real, and keeps beside it what should be read."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._store = Store(state_dir / FILE)
        self._names = count()
        self.expected: list[list[object]] = []
        self._start()

    def do(self, step: str, first: object, second: object) -> None:
        getattr(self, f"_{step}")(first, second)

    def read(self) -> list[list[object]]:
        return [
            [row.seq, row.request_id, row.client, row.queries, row.outcome, row.results]
            for row in rows(self._state_dir)
        ]

    def close(self) -> None:
        self._log.close()
        self._store.close()

    def _start(self) -> None:
        self._journal = Journal(self._state_dir / FOLDER)
        self._log = AuditLog(self._journal)
        self._open: list[tuple[Record, list[object]]] = []

    def _begin(self, client: str, queries: list[str] | None) -> None:
        name = str(next(self._names))
        record = self._log.begin(request(name, client=client), "discovery", queries=queries)
        row: list[object] = [len(self.expected) + 1, name, client, queries, None, None]
        self.expected.append(row)
        self._open.append((record, row))

    def _finish(self, which: int, ending: str) -> None:
        if which < len(self._open):
            record, row = self._open.pop(which)
            record.finish(ending, results=which)  # type: ignore[arg-type]
            row[4:] = [ending, which]

    def _refuse(self, client: str, _: object) -> None:
        name = str(next(self._names))
        self._log.record_refusal("denied", kind="execute", method="m", token_id=None, client=client, request_id=name)
        self.expected.append([len(self.expected) + 1, name, client, None, "denied", None])

    def _rotate(self, _: object, __: object) -> None:
        self._log.housekeep()

    def _move(self, _: object, __: object) -> None:
        self._store.move(self._state_dir / FOLDER, self._journal.position)

    def _restart(self, _: object, __: object) -> None:
        self._log.close()
        for _record, row in self._open:
            row[4] = "interrupted"
        self._start()
        self._journal.open()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Eight rows: the first half in the database, the second in the journal; the last is under way."""
    wall = Clock(1000.0)
    journal = Journal(tmp_path / FOLDER)
    log = AuditLog(journal, wall=wall)
    for half in ("old", "new"):
        log.begin(request(half, token="laptop"), "execute", tool_key="a:x", server_id="a").finish("ok")
        log.begin(request(half, token="phone"), "execute", tool_key="b:y", server_id="b").finish("timeout", "timeout")
        log.begin(request(half, project=None), "discovery", queries=["q"]).finish("ok", provider="bm25")
        if half == "old":
            log.record_refusal("unauthorized", kind="execute", method="tools/call", token_id=None, request_id=half)
            log.housekeep()
            store = Store(tmp_path / FILE)
            store.move(tmp_path / FOLDER, journal.position)
            store.close()
            wall.now = 2000.0
    log.begin(request("new"), "execute", tool_key="a:x", server_id="a")
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        (Filter(), [1, 2, 3, 4, 5, 6, 7, 8]),
        (Filter(token="phone"), [2, 6]),
        (Filter(token=""), [4]),
        (Filter(project=""), [3, 4, 7]),
        (Filter(project="research", kind="execute", outcome="ok"), [1, 5]),
        (Filter(tool_key="a:x"), [1, 5, 8]),
        (Filter(server_id="b"), [2, 6]),
        (Filter(kind="discovery"), [3, 7]),
        (Filter(outcome="denied"), [4]),
        (Filter(outcome=""), [8]),
        (Filter(code="timeout"), [2, 6]),
        (Filter(since_ms=2_000_000), [5, 6, 7, 8]),
        (Filter(until_ms=2_000_000), [1, 2, 3, 4]),
        (Filter(since_ms=2_000_000, token="phone"), [6]),
        (Filter(after_seq=6, also=frozenset({2})), [2, 7, 8]),
    ],
)
def test_filters_hold_in_both_places(state_dir: Path, wanted: Filter, seqs: list[int]) -> None:
    assert [row.seq for row in read_rows(state_dir, wanted)] == seqs
    assert [row.seq for row in read_rows(state_dir, wanted, newest=2)] == seqs[-2:]


def test_a_folder_without_anything_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == []
    assert list(read_rows(tmp_path, newest=5)) == []


def test_reading_changes_nothing(state_dir: Path) -> None:
    before = {path: path.read_bytes() for path in state_dir.rglob("*") if path.is_file()}
    rows(state_dir)
    after = {path: path.read_bytes() for path in state_dir.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before
    assert {path.name for path in after.keys() - before.keys()} <= {f"{FILE}-wal", f"{FILE}-shm"}


def test_following_shows_each_row_once_when_its_call_is_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FOLDER)
    log = AuditLog(journal)
    store = Store(tmp_path / FILE)

    def call(name: str) -> Record:
        return log.begin(request(name), "execute")

    for name in ("one", "two", "three"):
        call(name).finish("ok")
    early = call("early")

    def life() -> Iterator[None]:
        call("four").finish("ok")
        yield
        call("five").finish("error")
        early.finish("ok")
        yield
        yield
        log.housekeep()
        store.move(tmp_path / FOLDER, journal.position)
        call("six").finish("ok")
        yield

    goes_on = life()
    shown = follow(tmp_path, Filter(outcome="ok"), 2, pause=lambda: next(goes_on))
    assert [[row.request_id for row in next(shown)] for _ in range(5)] == [
        ["two", "three"],
        ["four"],
        ["early"],
        [],
        ["six"],
    ]


def test_a_call_that_its_run_did_not_survive_is_followed_to_its_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request("open"), "execute")
    shown = follow(tmp_path, Filter(), 10, pause=log.close)
    assert [[row.outcome for row in next(shown)] for _ in range(2)] == [[], ["interrupted"]]


def test_the_last_use_of_a_token_is_found_in_journal_and_database(tmp_path: Path) -> None:
    clock = Clock()
    log = open_log(tmp_path, wall=clock)
    store = Store(tmp_path / FILE)
    for token, client in (("laptop", "claude-code"), ("phone", "cursor"), ("laptop", "codex")):
        log.begin(request(token=token, client=client), "execute").finish("ok")
        clock.now += 1
    log.close()
    store.move(tmp_path / FOLDER, None)
    first = int(Clock().now * 1000)
    wanted = ["laptop", "phone", "never"]
    assert last_uses(tmp_path, wanted) == {
        "laptop": LastUse(first + 2000, "codex"),
        "phone": LastUse(first + 1000, "cursor"),
    }
    log = open_log(tmp_path, wall=clock)
    log.begin(request(token="phone", client="zed"), "execute")  # in the journal only
    assert last_uses(tmp_path, wanted)["phone"] == LastUse(first + 3000, "zed")
    log.close()
    store.close()


def test_the_last_use_is_looked_up_in_an_index(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / FILE)) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT time_ms, client FROM audit WHERE token = ? ORDER BY time_ms DESC LIMIT 1", ("a",)
        ).fetchall()
        assert "SEARCH audit USING INDEX audit_token (token=?)" in str(plan)
        assert "TEMP B-TREE" not in str(plan)
        connection.execute("DROP INDEX audit_token")
    assert last_uses(tmp_path, ["a"]) == {}
    with closing(open_database(tmp_path / FILE)) as connection:  # an older database gets the index
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit_token'").fetchone()
