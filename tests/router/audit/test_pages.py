"""Pages of the audit: by seq, with bounded work, however many rows there are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.router.audit.database import FILE, open_database
from pointsman.router.audit.query import (
    NEARBY,
    Filter,
    Page,
    read_page,
    read_rounds,
    read_rows,
)
from pointsman.router.audit.sqlite_rows import FIRST_SEQ, LAST_SEQ, statement_for
from tests.router.audit.samples import open_log, request

ROWS = 200_000
BEGAN_MS = 1_700_000_000_000
_FILL = """
    WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < ?)
    INSERT INTO audit (seq, run, time_ms, request_id, kind, token, project, client, method, queries, tool_key,
                       server_id, outcome, ms)
    SELECT seq, 'run', ? + seq * 1000, 'r' || (seq / 2), iif(seq % 3, 'execute', 'discovery'), 'token' || (seq % 7),
           NULL, 'client', 'tools/call', iif(seq % 3, NULL, '["find thing ' || seq || '"]'), iif(seq % 3, 'a:x', NULL),
           'a', iif(seq % 100, 'ok', 'error'), 1.5
    FROM n
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    with closing(open_database(folder / FILE)) as connection:
        connection.execute(_FILL, (ROWS, BEGAN_MS))
    return folder


def page_of(folder: Path, wanted: Filter | None = None, before: int | None = None, **options: int) -> Page:
    return read_page(folder, wanted or Filter(), newest=0, before=before, **({"count": 50} | options))


def seqs(page: Page) -> list[int]:
    return [row.seq for row in page.rows]


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(kind="discovery", token="token3", text="nothing"),
        Filter(since_ms=BEGAN_MS, until_ms=BEGAN_MS + 10**12, outcome="error", server_id="a", tool_key="a:x"),
        Filter(request_id="r77"),
    ],
)
def test_a_page_is_a_range_of_the_primary_key_and_sorts_nothing(many: Path, wanted: Filter) -> None:
    with closing(sqlite3.connect(many / FILE)) as connection:
        connection.execute("CREATE INDEX IF NOT EXISTS by_token ON audit (token, time_ms)")  # no other index matters
        bounded = replace(wanted, before_seq=ROWS, after_seq=ROWS - 50_000)
        statement, arguments = statement_for(connection, bounded, backwards=True)
        plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
        assert plan == ["SEARCH audit USING INDEX sqlite_autoindex_audit_1 (seq>? AND seq<?)"]
        for look_up in (FIRST_SEQ, LAST_SEQ):
            steps = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {look_up}", (BEGAN_MS, 10))]
            assert any("SEARCH audit USING INDEX audit_time (time_ms" in step for step in steps), steps
            assert not any("TEMP B-TREE" in step for step in steps)


def test_all_pages_together_are_all_rows(many: Path) -> None:
    wanted, found, before, pages = Filter(outcome="error", token="token2"), [], None, 0
    while True:
        page = page_of(many, wanted, before)
        found += seqs(page)
        pages += 1
        if page.older is None:
            break
        assert before is None or page.older < before
        before = page.older
    assert found == [seq for seq in range(ROWS, 0, -1) if seq % 100 == 0 and seq % 7 == 2]
    assert pages < 20


def test_a_page_says_where_it_stopped_looking(many: Path) -> None:
    page = page_of(many, Filter(text="find thing 3 nowhere"))
    assert (page.rows, page.older, page.complete) == ([], ROWS - 50_000 + 1, False)
    last = page_of(many, Filter(text="nowhere"), before=50_000)
    assert (last.rows, last.older, last.complete) == ([], None, True)


def test_a_time_leads_to_its_rows_at_once(many: Path) -> None:
    wanted = Filter(since_ms=BEGAN_MS + 1_000_000, until_ms=BEGAN_MS + 1_010_000)
    page = page_of(many, wanted)
    assert (seqs(page), page.older) == (list(range(1009, 999, -1)), None)
    assert page_of(many, Filter(until_ms=BEGAN_MS)).rows == []
    assert page_of(many, Filter(since_ms=BEGAN_MS + 10**12)).rows == []
    assert seqs(page_of(many, Filter(until_ms=BEGAN_MS + 10**12), count=2)) == [ROWS, ROWS - 1]


@pytest.mark.parametrize("text", ["FIND thing 199998", "thing 199998", "A:X", "r99999", "tools/CALL"])
def test_text_is_found_wherever_it_is(many: Path, text: str) -> None:
    found = seqs(page_of(many, Filter(text=text), count=5))
    assert {199_998, 199_999} & set(found) or found[:1] == [ROWS]


@pytest.mark.parametrize("text", ["%", "_hing", "find_thing", "\\", "a%x"])
def test_marks_of_a_pattern_are_letters(many: Path, text: str) -> None:
    assert page_of(many, Filter(text=text), count=5, scanned=1_000).rows == []


def test_rows_of_the_journal_come_first_and_match_alike(many: Path, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request("one"), "discovery", queries=['say "Ünder" 100%']).finish("ok", results=1)
    log.begin(request("two", client="Other_Client"), "execute", tool_key="b:y", server_id="b").finish("error", "boom")
    under_way = log.begin(request("three"), "execute", tool_key="b:z", server_id="b")
    for wanted, expected in (
        (Filter(), [3, 2, 1]),
        (Filter(text="other_client"), [2]),
        (Filter(text="OTHERXCLIENT"), []),
        (Filter(text='"Ünder" 100%'), [1]),
        (Filter(outcome=""), [3]),
        (Filter(outcome="error", code="boom"), [2]),
        (Filter(server_id="b", before_seq=None), [3, 2]),
    ):
        assert seqs(read_page(tmp_path, wanted, newest=log.last_seq, count=10)) == expected
    first = read_page(tmp_path, Filter(), newest=log.last_seq, count=2)
    assert seqs(first) == [3, 2]
    assert seqs(read_page(tmp_path, Filter(), newest=log.last_seq, before=first.older, count=2)) == [1]
    position = log.position
    under_way.finish("ok")
    assert log.position != position


def test_a_row_is_opened_with_its_rounds(many: Path, tmp_path: Path) -> None:
    assert [row.seq for row in read_rounds(many, 100_000)] == [100_000, 100_001]
    assert read_rounds(many, ROWS + 5) == []
    assert read_rounds(many, 0) == []
    log = open_log(tmp_path)
    record = log.begin(request("asks"), "execute", tool_key="a:x")
    record.finish("input_required")
    log.begin(request("other"), "discovery", queries=["x"]).finish("ok")
    record.begin_next_round()
    record.finish("ok")
    assert [(row.seq, row.outcome) for row in read_rounds(tmp_path, 1)] == [(1, "input_required"), (3, "ok")]
    assert NEARBY < ROWS


def test_filters_by_page_and_as_a_whole_agree(many: Path) -> None:
    wanted = Filter(kind="execute", token="token1", since_ms=BEGAN_MS + 199_000_000)
    assert seqs(page_of(many, wanted, count=1_000)) == [row.seq for row in read_rows(many, wanted)][::-1]
